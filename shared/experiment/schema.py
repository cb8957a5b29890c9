"""An experiment: a frozen, typed model of the TOML file that defines a federation completely.

`data` and `model` define what is learned; `training`, `personalizer` and `evaluation` define what a
client does; `server` defines what the aggregator does. `phases` and the round policy define when
rounds begin and end. For tests, `attackers` defines which clients are hostile. Unknown keys are
refused. `rampart_fl.shared.validation` builds everything that the file names, such as rules and
attacks. This module must not import torch, because the API role uses it without torch.
"""

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.membership import Clients
from rampart_fl.shared.experiment.phases import Phases
from rampart_fl.shared.experiment.placement import Placement, hostile_slots
from rampart_fl.shared.experiment.selection import (
    Selection,
    drawn_count,
    most_summoned,
    quota,
    select,
    summon,
)
from rampart_fl.shared.experiment.server import Server
from rampart_fl.shared.experiment.shipped import find, text_of
from rampart_fl.shared.experiment.slots import client_names
from rampart_fl.shared.experiment.start import Start, from_file, start_of, with_start, without_start
from rampart_fl.shared.experiment.tables import MemberSpec
from rampart_fl.shared.experiment.tables import Table as Table
from rampart_fl.shared.families.registry import explain


class Data(Table):
    """The data set, and how it is divided among clients."""

    dataset: MemberSpec
    partition: MemberSpec = {"name": "iid"}
    clients: int = Field(default=20, ge=1, le=100_000)
    test_fraction: float = Field(default=0.25, gt=0, lt=1)
    """Fraction of each client's samples that forms the client's own test set."""
    samples: int | None = Field(default=None, ge=2)
    """Largest number of samples per client, training and test together. If the partition gives a
    client more samples, the client keeps only a random subset of `samples` samples."""
    reserved: int = Field(default=0, ge=0)
    """Number of samples that are reserved for the server. The reserved samples are drawn before the
    other samples are divided among the clients."""


def _terms(value: Any) -> Any:
    return [] if value == "plain" else value if isinstance(value, list) else [value]


class Privacy(Table):
    """Local differential privacy of honest clients' uploads, by DP-SGD."""

    clip: float = Field(default=1.0, gt=0)
    """Largest norm of each sample's gradient; gradients with a larger norm are scaled down."""
    noise_multiplier: float = Field(default=1.0, gt=0)
    """Standard deviation of the noise on the sum of clipped gradients, in multiples of `clip`."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """The δ at which the spent ε is reported."""


class Training(Table):
    """Local training: mini-batch SGD on cross entropy plus the terms of the objective."""

    epochs: int = Field(default=5, ge=1)
    batch_size: int = Field(default=10, ge=1)
    learning_rate: float = Field(default=0.01, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    objective: Annotated[list[MemberSpec], BeforeValidator(_terms)] = []
    """Terms that honest clients add to the cross entropy, such as `fedprox`; "plain" adds none."""
    schedule: MemberSpec = {"name": "constant"}
    """How the learning rate changes from round to round."""
    privacy: Privacy | None = None
    """Differential privacy: clients clip gradients, add noise to them, draw batches at random, and
    report the ε that they have spent."""
    output_noise: float = Field(default=0.0, ge=0)
    """Standard deviation of normal noise that honest clients add to uploads (MSDFL, VII-E)."""


class Evaluation(Table):
    """What clients measure in addition to accuracy, whether or not there is an attack."""

    trigger: MemberSpec | None = None
    """A backdoor, such as `dba`. Every client measures the backdoor's success on its own test
    images."""


class Attackers(Table):
    """A group of clients that are started as attackers, in order to test the defences."""

    count: int = Field(ge=0)
    attack: MemberSpec | None = None
    """Attack that changes the attackers' uploads."""
    data_attack: MemberSpec | None = None
    """Attack that changes the attackers' own training data."""


RoundPolicy = Literal["sync", "buffered"]
"""Whether rounds wait for their clients (sync) or not (buffered)."""


class Experiment(Table):
    """One experiment; see the module's docstring for its tables."""

    later: ClassVar[frozenset[str]] = frozenset({"packages", "clients", "fraction_of"})

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    description: str = ""
    seed: int = Field(default=0, ge=0, lt=2**31)
    rounds: int = Field(default=30, ge=1, le=1_000_000)
    policy: RoundPolicy = "sync"
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the clients that is drawn for each round (sync policy). The server may summon
    further clients (`server.summons`)."""
    fraction_of: Literal["candidates", "founders"] = "candidates"
    """The number that `fraction` is multiplied by. `candidates`: the number of clients that may be
    drawn for the round. `founders`: `data.clients`. With `founders`, rounds keep their size after
    evictions, as long as enough clients are left."""
    buffer: float = Field(default=0.5, gt=0)
    """Number of uploads after which the global model is refreshed (buffered policy). A value up to
    1 is a fraction of the clients."""
    data: Data
    clients: Clients = Clients()
    model: Annotated[MemberSpec, AfterValidator(with_start)]
    """The network to train. The key `start` sets the source of the first global model. `{ run =
    "...", round = 30 }` names a run of the same federation, and `{ file = "..." }` names a
    safetensors file. Without `start`, the model is drawn from the seed."""
    training: Training = Training()
    personalizer: MemberSpec = {"name": "none"}
    evaluation: Evaluation = Evaluation()
    server: Server = Server()
    phases: Phases = Phases()
    attackers: list[Attackers] = []
    placement: Placement = "random"
    """Which slots the groups of attackers take: slots drawn from the seed, or the last slots."""
    packages: dict[str, str] = {}
    """The packages that provide members (such as rules) from outside Rampart, keyed by the member's
    name: `midrange = "my-rules==1.2"`. `rampart_fl.validate` fills in `packages`, so that an error
    message can name the package that a machine lacks."""

    @model_validator(mode="after")
    def _fewer_attackers_than_clients(self) -> "Experiment":
        hostile = sum(group.count for group in self.attackers)
        if hostile >= self.data.clients:
            raise ValueError(f"{hostile} attackers, but only {self.data.clients} clients")
        return self

    @model_validator(mode="after")
    def _share_of_founders_counts(self) -> "Experiment":
        if self.fraction_of == "founders" and (self.fraction == 1 or self.policy == "buffered"):
            raise ValueError(
                f'fraction_of = "founders" has no effect with fraction = {self.fraction} and '
                f'policy = "{self.policy}": all clients take part'
            )
        return self

    @model_validator(mode="after")
    def _enough_clients(self) -> "Experiment":
        least, wanted = self.clients.least, self.phases.collecting.count.min
        if least > self.data.clients:
            raise ValueError(f"clients.least is {least}, but data.clients is {self.data.clients}")
        if wanted > self.most_clients:
            most = f"but only {self.most_clients} clients"
            raise ValueError(f"phases.collecting.count.min is {wanted:g}, {most}")
        return self

    @staticmethod
    def load(source: str | Path) -> "Experiment":
        """Reads a file, or a shipped experiment by name.

        Raises:
            ConfigurationError: the file does not exist, is not TOML, or has a wrong key or value;
                the message names the cause.

        >>> Experiment.load("digits-benign").data.clients
        20
        """
        path = find(source)
        try:
            return Experiment.parse(text_of(path))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @staticmethod
    def parse(text: str) -> "Experiment":
        """An experiment from the text of a TOML file."""
        return Experiment.from_tables(Experiment.tables_of(text))

    @staticmethod
    def tables_of(text: str) -> dict[str, Any]:
        """Parses a TOML file to nested dictionaries, without checking them as an experiment."""
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigurationError(f"not a TOML file: {error}") from None

    @staticmethod
    def from_tables(tables: Mapping[str, Any]) -> "Experiment":
        """An experiment from nested dictionaries, such as those that `tables()` returns."""
        if "sweep" in tables:
            raise ConfigurationError(
                "a file with a [sweep] defines many experiments; use rampart simulate to run them"
            )
        try:
            return Experiment.model_validate(tables)
        except ValidationError as error:
            raise ConfigurationError(explain(error, Experiment)) from None

    def tables(self) -> dict[str, Any]:
        """All settings as JSON values; keys in `Table.later` with default values are left out."""
        return self.model_dump(mode="json")

    def digest(self) -> str:
        """SHA-256 of all settings in canonical JSON; equal digests mean equal experiments."""
        text = json.dumps(self.tables(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def client_part(self) -> dict[str, Any]:
        """The part of the experiment that clients receive.

        This part excludes `attackers`, `placement`, the table `clients` and the key `model.start`.
        Of the server's settings, it contains only the sample cap. It also contains the digest of
        the whole experiment.
        """
        public = self.model_dump(
            mode="json", exclude={"server", "attackers", "placement", "packages", "clients"}
        )
        public["model"] = self.network
        text = json.dumps(public)
        return {
            **public,
            "packages": {name: of for name, of in self.packages.items() if f'"{name}"' in text},
            "sample_cap": self.server.sample_cap,
            "digest": self.digest(),
        }

    @property
    def network(self) -> dict[str, Any]:
        """The member spec of the network: `model` without the key `start`."""
        return without_start(self.model)

    @property
    def start(self) -> Start | None:
        """Where the first global model comes from; None if it is drawn from the seed."""
        return start_of(self.model)

    def started_from(self, file: str | Path) -> "Experiment":
        """A copy of the experiment whose first global model comes from this file."""
        return self.model_copy(update={"model": from_file(self.model, file)})

    @property
    def roles(self) -> list[Attackers | None]:
        """For each slot, the group of attackers that takes the slot; None for an honest client."""
        hostile = [group for group in self.attackers for _ in range(group.count)]
        slots = hostile_slots(self.placement, self.seed, self.data.clients, len(hostile))
        taken = dict(zip(slots, hostile, strict=True))
        return [taken.get(slot) for slot in range(self.data.clients)]

    @property
    def client_names(self) -> list[str]:
        """The clients' names, ordered by slot; sorting the names gives the same order.

        >>> Experiment.load("digits-benign").client_names[7]
        'client-07'
        """
        return client_names(self.data.clients)

    def draw(self, round_: int, candidates: Iterable[str]) -> tuple[str, ...]:
        """The clients of a round: all candidates (buffered policy), or a draw from them (`select`).

        >>> small = Experiment.load("digits-partial")
        >>> len(small.draw(0, small.client_names)), len(small.draw(0, small.client_names[:10]))
        (10, 5)
        """
        if self.policy == "buffered":
            return tuple(sorted(candidates))
        founders = self.data.clients if self.fraction_of == "founders" else None
        return select(self.seed, round_, candidates, self.fraction, founders)

    def select(
        self, round_: int, candidates: Collection[str], awaited: Collection[str], secret: int
    ) -> Selection:
        """The clients of a round: a draw (`draw`), or a draw and summoned clients (`summon`).

        Clients are summoned only if some clients are awaited, and not all candidates take part.

        Args:
            round_: number of the round.
            candidates: the clients that can be selected.
            awaited: the clients whose next uploads a detector awaits.
            secret: seed of the draw that decides whose uploads count.
        """
        drawn, most = self.draw(round_, candidates), self.server.summons
        if not most or not awaited or len(drawn) == len(candidates):
            return Selection(drawn)
        return summon(self.seed, secret, round_, candidates, awaited, len(drawn), most)

    def clients_to_start(self, late: bool) -> int:
        """The number of clients that have to accept the run before it starts.

        Args:
            late: whether the deadline of the phase `joining` has passed.
        """
        return self.clients.least if late else self.phases.joining.clients or self.data.clients

    @property
    def most_rows(self) -> int:
        """The largest number of drawn clients in a round, if at most `most_clients` clients join.

        The buffered policy selects no clients, so a round may include a row of every client.
        """
        clients = self.most_clients
        return clients if self.policy == "buffered" else drawn_count(clients, self.fraction)

    @property
    def closing_rows(self) -> int:
        """The largest number of updates after which round 0 closes, even before its deadline.

        Later rounds of the buffered policy also aggregate rows of earlier rounds.
        """
        if self.policy == "buffered":
            return quota(self.buffer, self.most_clients)
        return max(1, self.phases.collecting.count.most(self.most_rows))

    @property
    def most_summoned(self) -> int:
        """The largest number of clients that a round summons, if detectors challenge clients."""
        drawn = self.most_rows
        return min(self.most_clients - drawn, most_summoned(drawn, self.server.summons))

    @property
    def most_clients(self) -> int:
        """The largest number of clients that the experiment plans for the run."""
        return max(self.data.clients, self.phases.joining.clients or 0)
