"""The worker's memory between rounds, as pointers: enough to go on after losing everything else."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from rampart_fl.services.aggregator.state.redis_records import SCHEMA
from rampart_fl.shared.assignment import handed, names_for
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.protocol.messages import Receipt


class Snapshot(BaseModel):
    """What stands after a published round; small, stored in the federation's hash.

    `pool` are the receipts of the surviving rows, calibrated against `reference`; `position` is
    the last event that is accounted for; `pulls` are clients that wait for a ticket (buffered).
    `customized` are digests of the models beside the global one, by name; `assignment` are names by
    client where these are not just its own, `groups` those among which all others have theirs by
    the hash of their ids, `voters` those that everyone gets at the end, `challenged` those that
    some clients train from in place of their own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: str = SCHEMA
    global_model: str
    reference: str
    state: str | None = None
    pool: tuple[Receipt, ...] = ()
    customized: dict[str, str] = {}
    assignment: dict[str, tuple[str, ...]] = {}
    groups: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    challenged: dict[str, str] = {}
    position: str = "0-0"
    pulls: tuple[str, ...] = ()

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> "Snapshot":
        """From the federation's hash; refuses another schema."""
        version = raw.get("schema_version")
        if version != SCHEMA:
            raise ConfigurationError(
                f"stored state has schema {version}, this version reads {SCHEMA}"
            )
        return Snapshot.model_validate(raw)

    def handed(self, client: str, final: bool = False) -> dict[str, str]:
        """Digests of the models that a client gets next, or at the end, as a ticket names them."""
        return handed(client, vars(self), final)

    def start(self, client: str) -> str:
        """Digest of the model that a client trains from next."""
        return self.handed(client)["model"]

    def own(self, client: str) -> str:
        """Digest of the model that a client would train from if it were not challenged."""
        return self.handed(client, final=True)["model"]

    def unchanged(self) -> dict[str, str]:
        """For each challenged model, the one that its client would have trained from."""
        models = {c: self.customized[name] for c, name in self.challenged.items()}
        return {digest: self.own(client) for client, digest in models.items()}

    def knows(self, client: str) -> bool:
        """Whether a client has a model of its own or of its group, or a challenge."""
        names = names_for(client, self.customized, self.assignment, self.groups)
        return bool(names) or client in self.challenged

    def blobs(self) -> set[str]:
        """Digests of everything that it points to."""
        uploads = {digest for r in self.pool for digest in (r.digest, r.started) if digest}
        models = {self.global_model, self.reference, *self.customized.values()}
        return uploads | models | ({self.state} if self.state else set())
