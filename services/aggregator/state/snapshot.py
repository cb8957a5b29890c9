"""The worker's state between rounds, as pointers to blobs.

A worker that takes over a run restores the models and the pool of updates from the snapshot.
"""

import json
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, field_serializer, model_validator

from rampart_fl.services.aggregator.state.keys import SCHEMA
from rampart_fl.shared.assignment import GLOBAL, names_for
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.protocol.messages import Receipt


class Snapshot(BaseModel):
    """The state after a published round; it fits into one field of the run's Redis hash.

    - `global_model` and `reference` are digests of models. `state` is the digest of the blob with
      the stages' state; None if the stages have no state.
    - `pool` has the receipts of the updates that the server keeps as rows. Each row is a
      difference from the model `reference`.
    - `origins` has a dictionary for each client. The dictionary maps the digest of a challenged
      model to the digest of the same model without the challenge. `origins` contains the challenged
      models from which clients trained the updates in `pool`. Under the buffered policy, `origins`
      also contains the challenged models of earlier rounds from which clients may still train.
    - `customized` maps the names of all models, except the global one, to their digests.
    - `assignment` maps a client to the names of its models. A client needs no entry in `assignment`
      if its only model is stored under the client's id.
    - `groups` has the names of the groups' models. A client may have neither an entry in
      `assignment` nor its own model. Such a client gets the model of a group; the hash of the
      client's id selects the group.
    - `voters` has the names of the models that every client gets at the end, for a majority vote.
    - `challenged` maps each challenged client to the name of a model. The client trains from this
      model, and not from its own model.
    - `awaited` has the clients whose next uploads a detector awaits.
    - `silent` has the awaited clients that sent no update for the latest round for which they were
      selected. The worker summons none of these clients, because each of them could delay every
      round.
    - `position` is the position of the last event that was handled for the round.
    - `pulls` has the clients that wait for a ticket (buffered policy).
    - `initial` is the digest of the run's first model; None if the first model is initialized from
      the seed. Clients initialize their personal models with the model `initial`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: str = SCHEMA
    global_model: str
    reference: str
    state: str | None = None
    pool: tuple[Receipt, ...] = ()
    origins: dict[str, dict[str, str]] = {}
    customized: dict[str, str] = {}
    assignment: dict[str, tuple[str, ...]] = {}
    groups: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    challenged: dict[str, str] = {}
    awaited: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    position: str = "0-0"
    pulls: tuple[str, ...] = ()
    initial: str | None = None

    @field_serializer("origins")
    def _flat(self, origins: dict[str, dict[str, str]]) -> dict[str, str]:
        """Converts `origins` to one flat object, so that workers of earlier versions can read it.

        For each challenged model, the object has the digest of the model without the challenge. As
        in earlier versions, the key is `CLIENT` if the client's row in the pool was trained from
        the challenged model. Otherwise, the key is `CLIENT DIGEST`; DIGEST is the digest of the
        challenged model.
        """
        started = {receipt.client: receipt.started for receipt in self.pool}
        return {
            client if started.get(client) == challenged else f"{client} {challenged}": own
            for client, known in origins.items()
            for challenged, own in known.items()
        }

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """Reverses `_flat`."""
        started = {
            r["client"]: r.get("started") for r in raw.get("pool", ()) if isinstance(r, dict)
        }
        nested: dict[str, Any] = {}
        for key, own in raw.get("origins", {}).items():
            client, _, challenged = key.partition(" ")
            if isinstance(own, str):
                nested.setdefault(client, {})[challenged or started.get(client)] = own
            else:
                nested[key] = own
        return {**raw, "origins": nested}

    @staticmethod
    def parse(text: str) -> "Snapshot":
        """Parses a stored snapshot; raises an error if it has another version's schema."""
        raw = json.loads(text)
        version = raw.get("schema_version")
        if version != SCHEMA:
            raise ConfigurationError(
                f"the stored state has schema {version}; this version reads {SCHEMA}"
            )
        return Snapshot.model_validate(raw, extra="ignore")

    def ticket_models(self, client: str, final: bool = False) -> dict[str, str]:
        """Digests of the models in a client's ticket, keyed by the role of each model.

        During the run, the client trains from `model`; its other models are `peer_00`, `peer_01`
        and so on. At the end of the run, the client evaluates `model`; the models that vote are
        `vote_00`, `vote_01` and so on. If the client has no customized model, `model` is the global
        model.

        Args:
            client: the client's id.
            final: whether the run has ended.

        >>> snapshot = Snapshot(global_model="0", reference="0", customized={"a": "1", "b": "2"},
        ...                     assignment={"a": ("a", "b")})
        >>> snapshot.ticket_models("a")
        {'model': '1', 'peer_00': '2'}
        """
        first, *peers = self._names(client) or (GLOBAL,)
        if not final:
            first = self.challenged.get(client, first)
        role, others = ("vote", self.voters) if final else ("peer", peers)
        digests = {f"{role}_{n:02d}": self.customized[name] for n, name in enumerate(others)}
        return {"model": self.customized.get(first, self.global_model), **digests}

    def start(self, client: str) -> str:
        """Digest of the model that a client trains from next."""
        return self.ticket_models(client)["model"]

    def own(self, client: str) -> str:
        """Digest of the model that a client would get if it were not challenged.

        A challenged client trains from a changed copy of this model; every other client trains
        from this model itself.
        """
        return self.ticket_models(client, final=True)["model"]

    def origins_of(self, client: str) -> dict[str, str]:
        """Maps each challenged model that a client may start from to the model without the
        challenge.

        Keys and values are digests. The result has the client's entries in `origins`, and an
        entry for its current challenge.

        >>> snapshot = Snapshot(global_model="0", reference="0", customized={"a": "1", "c": "2"},
        ...                     challenged={"a": "c"}, origins={"a": {"3": "0"}})
        >>> snapshot.origins_of("a"), snapshot.origins_of("b")
        ({'3': '0', '2': '1'}, {})
        """
        name, earlier = self.challenged.get(client), self.origins.get(client, {})
        return earlier if name is None else {**earlier, self.customized[name]: self.own(client)}

    def origins_in_use(
        self, pool: Iterable[Receipt], in_use: Collection[str]
    ) -> dict[str, dict[str, str]]:
        """The `origins` of the next snapshot.

        Args:
            pool: the receipts of the updates that the server keeps as rows.
            in_use: digests of the models from which clients may still train.
        """
        started = {receipt.client: receipt.started for receipt in pool}
        kept = {
            client: {
                challenged: own
                for challenged, own in self.origins_of(client).items()
                if challenged == started.get(client) or challenged in in_use
            }
            for client in sorted(self.origins.keys() | self.challenged.keys())
        }
        return {client: known for client, known in kept.items() if known}

    def silent_after(self, selected: Collection[str], answered: Collection[str]) -> tuple[str, ...]:
        """The entry `silent` of the next snapshot.

        Args:
            selected: the clients that were selected for the round.
            answered: the clients that sent an update for the round.

        >>> known = {"awaited": ("a", "b", "c"), "silent": ("b", "d")}
        >>> snapshot = Snapshot(global_model="0", reference="0", **known)
        >>> snapshot.silent_after(["a", "b", "x"], ["b"])
        ('a', 'd')
        """
        silent = {*self.silent, *set(self.awaited).intersection(selected)}
        return tuple(sorted(silent.difference(answered)))

    def has_own_model(self, client: str) -> bool:
        """Whether a client has its own model, the model of a group, or a challenge."""
        return bool(self._names(client)) or client in self.challenged

    def blobs(self) -> set[str]:
        """Digests of all blobs that the snapshot refers to."""
        uploads = {digest for r in self.pool for digest in (r.digest, r.started) if digest}
        models = {self.global_model, self.reference, *self.customized.values()}
        models |= {own for known in self.origins.values() for own in known.values()}
        return uploads | models | {digest for digest in (self.state, self.initial) if digest}

    def _names(self, client: str) -> tuple[str, ...]:
        """Names of a client's customized models; the model of a challenge is not among them."""
        return names_for(client, self.customized, self.assignment, self.groups)
