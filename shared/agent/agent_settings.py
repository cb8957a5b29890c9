"""Settings of a process that hosts clients."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from rampart_fl.shared.agent.client import POLL
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.process import ServiceSettings
from rampart_fl.shared.runtime.ranges import parse_lists


class AgentSettings(ServiceSettings):
    """Settings of a process that hosts clients; the variable RAMPART_<FIELD> sets a field."""

    aggregator: str = "http://127.0.0.1:8440"
    """URL of the aggregator."""
    clients: int | None = Field(default=None, ge=1, le=10_000)
    """Number of clients in this process (by default 1); each takes any free slot of a run."""
    slots: str | None = None
    """The slots that this process's clients ask for, such as "0-5,9"; set either `slots` or
    `clients`. Each slot is one part of the experiment's data. If `ordinal` is set, `slots` contains
    the lists of several processes, separated by spaces: "0-5,9 6-8"."""
    ordinal: int | None = Field(default=None, ge=0)
    """Position of this process's list in `slots`, counted from 0. In Kubernetes, this position is
    the ordinal of the pod."""
    state: Path = Path("client-state")
    """Folder for identities, personal models and unfinished uploads. The folder contains one folder
    per client, and each client's folder contains one folder per run."""
    join_tokens: Path | None = None
    """File with one join token per line, in the order of the clients. An attacker that rejoins
    after an eviction needs another token. For such attackers, the file first lists one token for
    every client, then a second token for every client, and so on."""
    join_token: str | None = None
    """A single join token; ignored if `join_tokens` is set."""
    data_file: Path | None = None
    """The client's own data (.npz with x_train, y_train, x_test, y_test), which replaces the data
    of the client's slot."""
    accept: Path | None = None
    """File that says in which runs the clients take part (see docs/clients.md); by default, they
    take part in every run."""
    ca_certificate: Path | None = None
    """CA bundle for the aggregator's TLS certificate."""
    upload_dtype: Literal["F32", "F16", "BF16"] = "F32"
    """Number format of uploads; with a 16-bit format, uploads are half as large."""
    compress: bool = False
    """Whether to compress uploads with zstd."""
    threads: int = Field(default=1, ge=1)
    """Number of threads for training."""
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    """Device on which clients train: cpu, cuda or cuda:1. All clients of a process share the
    device."""
    patience: float = Field(default=3600.0, gt=0)
    """Seconds to wait for an aggregator that does not answer."""
    ticket_wait: int = Field(default=POLL, ge=1, le=300)
    """Seconds for which the aggregator may hold open a request for a ticket. When a round starts,
    the aggregator immediately answers the requests of the selected clients. The other clients learn
    of the round only when their requests have waited this long."""
    stay_when_barred: bool = False
    """Whether the process waits for SIGTERM when all of its clients are barred from the federation.
    If false, the process exits. Choose true if the platform restarts every process that exits, as a
    Kubernetes StatefulSet does."""
    stay_after_errors: bool = False
    """What happens to a client that cannot train in a run. If true, the client waits for the run's
    end, and takes part in later runs. If false, the client fails."""
    personal_models_kept: int | None = Field(default=None, ge=0)
    """Maximum number of former runs whose personal models a client keeps. The client keeps the
    models of the newest runs. By default, it keeps the models of all runs."""
    trusted_packages: str = ""
    """Comma-separated names of trusted packages. An aggregator can name a model by its import path,
    which determines the code that runs on this machine. If the package of such a model is not in
    this list, the client refuses the model."""

    @model_validator(mode="after")
    def _slots_of_this_process(self) -> Self:
        if self.slots is None:
            if self.ordinal is not None:
                raise ValueError("`ordinal` chooses a list in `slots`, but `slots` is not set")
            return self
        if self.clients is not None:
            raise ValueError("set either `clients` or `slots`")
        processes = len(parse_lists(self.slots))
        if not processes:
            raise ValueError("`slots` is empty: a process hosts at least one client")
        if self.ordinal is None and processes > 1:
            raise ValueError(
                f"`slots` has lists for {processes} processes: set `ordinal` to choose one"
            )
        if self.ordinal is not None and self.ordinal >= processes:
            raise ValueError(
                f"`ordinal` is {self.ordinal}, but `slots` has lists for {processes} processes"
            )
        return self

    @property
    def hosted(self) -> list[int | None]:
        """The slot that each client of this process asks for; None if the client takes any slot.

        >>> AgentSettings(slots="0-5,9 6-8", ordinal=1).hosted
        [6, 7, 8]
        >>> AgentSettings(clients=2).hosted
        [None, None]
        """
        if self.slots is None:
            return [None] * (self.clients or 1)
        return [*parse_lists(self.slots)[self.ordinal or 0]]

    def check_trust(self, experiment: Experiment) -> None:
        """Refuses a model whose import path is outside the trusted packages.

        >>> own = {"name": "module", "path": "my_package.nets:Net"}
        >>> experiment = Experiment.load("digits-benign").model_copy(update={"model": own})
        >>> AgentSettings(trusted_packages="my_package").check_trust(experiment)
        """
        if experiment.network["name"] != "module":
            return
        path = str(experiment.network.get("path"))
        trusted = {name.strip() for name in self.trusted_packages.split(",")} - {""}
        if path.partition(":")[0].partition(".")[0] not in trusted:
            raise ConfigurationError(
                f"the experiment needs the model {path!r}: if you trust its package, name the "
                "package in RAMPART_TRUSTED_PACKAGES"
            )

    def tokens(self) -> list[str | None]:
        """The join token of each client, in order; None for a client without a token."""
        tokens: list[str | None] = [*self._lines()]
        clients = len(self.hosted)
        return tokens[:clients] + [None] * (clients - len(tokens))

    def further_tokens(self, position: int) -> list[str]:
        """The join tokens of one client for its second identity, its third identity, and so on.

        >>> AgentSettings(join_token="only").further_tokens(0)
        []
        """
        clients = len(self.hosted)
        return self._lines()[clients + position :: clients]

    def _lines(self) -> list[str]:
        if self.join_tokens is not None:
            if not self.join_tokens.exists():
                return []  # Joined clients need no tokens, so the file may be missing.
            lines = [
                line.strip() for line in self.join_tokens.read_text(encoding="utf-8").splitlines()
            ]
            return [line for line in lines if line]
        return [] if self.join_token is None else [self.join_token.strip()]
