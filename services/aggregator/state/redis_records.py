"""Parsed records of Redis: events, the federation, the standing of a client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rampart_fl.shared.experiment.eviction import Mode, Standing
from rampart_fl.shared.protocol.messages import FederationState, Receipt, Ticket

SCHEMA = "1"
"""Version of everything stored in Redis and of the snapshots in the blob store."""


@dataclass(frozen=True)
class Event:
    """One entry of the event stream."""

    position: str
    type: str
    fields: Mapping[str, str]

    @property
    def client(self) -> str:
        """The client it is about."""
        return self.fields["client"]

    @property
    def round(self) -> int:
        """The round it is about."""
        return int(self.fields["round"])

    @property
    def receipt(self) -> Receipt:
        """The receipt of the upload that it tells of."""
        return Receipt.model_validate_json(self.fields["receipt"])


@dataclass(frozen=True)
class Brief:
    """The small fields of the federation hash."""

    schema: str
    digest: str
    policy: str
    status: FederationState
    phase: str
    round: int
    opened_at: float
    deadline: float | None


@dataclass(frozen=True)
class Federation(Brief):
    """The whole federation hash, parsed."""

    experiment: dict[str, Any]
    spec: dict[str, Any]
    selected: tuple[str, ...]
    closing: str
    snapshot: dict[str, Any]
    mode: Mode | None
    """Of evictions, where an operator has said another than the experiment's."""
    abstained: tuple[str, ...]
    """Clients that the last round would have barred, were fewer barred already."""


@dataclass(frozen=True)
class Barred:
    """Who is barred and why, by client id in order, and all that says who else may be."""

    evicted: dict[str, dict[str, Any]]
    quarantined: dict[str, dict[str, Any]]
    clients: int
    founders: int | None
    mode: Mode | None

    def away(self, round_: int) -> set[str]:
        """The clients that may not be drawn for a round."""
        later = {client for client, why in self.quarantined.items() if why["until"] > round_}
        return later | self.evicted.keys()

    @property
    def proposals(self) -> dict[str, dict[str, Any]]:
        """The quarantines that an operator decides about."""
        return {c: why for c, why in self.quarantined.items() if why["kind"] == "proposal"}

    @property
    def standing(self) -> Standing:
        """As the round engine takes it."""
        founders = self.clients if self.founders is None else self.founders
        evicted, quarantined = frozenset(self.evicted), frozenset(self.quarantined)
        return Standing(self.clients, founders, evicted, quarantined, self.mode)


@dataclass(frozen=True)
class ClientStanding:
    """Where one client stands."""

    brief: Brief | None
    ticket: Ticket | None
    eviction: dict[str, Any] | None
    receipt: Receipt | None = None
    """Of the upload that was asked about."""


BRIEF = ("schema", "digest", "policy", "status", "phase", "round", "opened_at", "deadline")


def brief_fields(raw: Mapping[str, str | None]) -> dict[str, Any]:
    """The arguments of a `Brief` from the fields of the hash."""
    deadline, opened_at = raw.get("deadline"), raw.get("opened_at")
    return {
        **{name: raw[name] for name in BRIEF[:5]},
        "round": int(raw["round"] or 0),
        "opened_at": float(opened_at or 0),
        "deadline": float(deadline) if deadline else None,
    }
