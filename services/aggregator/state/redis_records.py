"""Parsed records from Redis: events, the federation, and the standing of a client."""

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
        """The client that the event is about."""
        return self.fields["client"]

    @property
    def round(self) -> int:
        """The round that the event is about."""
        return int(self.fields["round"])

    @property
    def receipt(self) -> Receipt:
        """The receipt of the upload that the event reports."""
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
    """The mode of evictions, if an operator has set one in place of the experiment's."""
    abstained: tuple[str, ...]
    """Clients that the last round would have barred if the limit on barred clients allowed it."""


@dataclass(frozen=True)
class Barred:
    """The barred clients with the reasons, by client id in order, and what bounds further bars."""

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
        """The quarantines that wait for an operator's decision."""
        return {c: why for c, why in self.quarantined.items() if why["kind"] == "proposal"}

    @property
    def standing(self) -> Standing:
        """The same facts in the form that the round engine takes."""
        founders = self.clients if self.founders is None else self.founders
        evicted, quarantined = frozenset(self.evicted), frozenset(self.quarantined)
        return Standing(self.clients, founders, evicted, quarantined, self.mode)


@dataclass(frozen=True)
class ClientStanding:
    """One client's ticket and eviction, with the federation's small fields."""

    brief: Brief | None
    ticket: Ticket | None
    eviction: dict[str, Any] | None
    receipt: Receipt | None = None
    """The receipt of the upload that the caller asked about, if there is one."""


BRIEF = ("schema", "digest", "policy", "status", "phase", "round", "opened_at", "deadline")


def brief_fields(raw: Mapping[str, str | None]) -> dict[str, Any]:
    """Parses the hash's fields into the arguments of a `Brief`."""
    deadline, opened_at = raw.get("deadline"), raw.get("opened_at")
    return {
        **{name: raw[name] for name in BRIEF[:5]},
        "round": int(raw["round"] or 0),
        "opened_at": float(opened_at or 0),
        "deadline": float(deadline) if deadline else None,
    }
