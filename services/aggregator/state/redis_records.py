"""Parsed values from Redis: events, a run's state, barred clients, and one client's state."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic import TypeAdapter

from rampart_fl.services.aggregator.state.keys import SCHEMA
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Mode, Standing
from rampart_fl.shared.experiment.schema import RoundPolicy
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.clients import Bar, Quarantine
from rampart_fl.shared.protocol.messages import Phase, Receipt, RunState, Ticket

EventType = Literal[
    # Runs
    "submitted",
    "started",
    "founded",
    "ended",
    "deleted",
    "taken_over",
    "running",
    "paused",
    "stopping",
    "mode",
    "waiting",
    "continued",
    # Rounds
    "opened",
    "aggregating",
    "published",
    "failed",
    # Clients
    "accepted",
    "declined",
    "joined",
    "slots_assigned",
    "labelled",
    "rotated",
    "revoked",
    "barred",
    "readmitted",
    "ticket",
    "pull",
    "update",
    "probe",
    "evaluation",
    "late",
    "proposed",
    "quarantined",
    "evicted",
    "abstained",
    "reinstated",
    "confirmed",
    "dismissed",
    "released",
    # Requests to the worker, and its answers
    "check",
    "checked",
    "customize",
    "customized",
]
"""The types of events. Streams that older versions wrote may contain further types."""


@dataclass(frozen=True)
class Event:
    """One entry of the event stream."""

    position: str
    type: EventType
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
        return read_model(Receipt, self.fields["receipt"])

    @property
    def has_receipt(self) -> bool:
        """Whether the event reports an upload."""
        return "receipt" in self.fields

    @property
    def request(self) -> str:
        """The id of the request that a worker has to answer or has answered."""
        return self.fields["request"]

    @property
    def digest(self) -> str:
        """The digest of the update for which a customized model is requested."""
        return self.fields["digest"]

    @property
    def run(self) -> str:
        """The run that the event is about."""
        return self.fields["run"]

    @property
    def addressee(self) -> str | None:
        """The client or the request that waits for the event; None if the event names neither."""
        return self.fields.get("client") or self.fields.get("request")


@dataclass(frozen=True)
class RunSummary:
    """The fields of a run's state that are small and quick to parse."""

    schema: str
    digest: str
    policy: RoundPolicy
    status: RunState
    phase: Phase
    round: int
    opened_at: float
    deadline: float | None


@dataclass(frozen=True)
class RunDetails(RunSummary):
    """The whole state of a run, parsed."""

    experiment: Experiment
    spec: ModelSpec
    selected: tuple[str, ...]
    examined: tuple[str, ...]
    """The selected clients whose updates the open round judges, but does not aggregate."""
    closing: str
    snapshot: Snapshot
    mode: Mode | None
    """The eviction mode that an operator has set; None if the experiment's mode applies."""
    abstained: tuple[str, ...]
    """Clients that the previous round did not bar, because the limit on barred clients was
    reached."""
    slots_assigned: bool
    """Whether slots have been assigned. Before the assignment, the run has no members."""
    server_seed: int = field(repr=False)
    """The seed of the server's random draws. It is secret: no response contains it."""


@dataclass(frozen=True)
class BarredClients:
    """The barred clients of a run, and what limits how many clients may be barred.

    Args:
        evicted: the clients evicted from the run, sorted by id. They need not be members: an
            operator may evict a client before it joins the run.
        quarantined: the clients in quarantine, sorted by id.
        banned: the clients that are barred from the whole federation. An operator may reinstate
            such a client in the run, but it still takes no part.
        members: the members of the run.
        founders: number of members when round 0 opened; None before that.
        mode: the mode that an operator has set; None if it is the experiment's mode.
        reinstated: the clients that an operator has reinstated since the last published round.
        abstained: the clients that the last round left out, but could not bar.
    """

    evicted: dict[str, Bar]
    quarantined: dict[str, Quarantine]
    banned: frozenset[str]
    members: frozenset[str]
    founders: int | None
    mode: Mode | None
    reinstated: frozenset[str] = frozenset()
    abstained: frozenset[str] = frozenset()

    @property
    def out(self) -> frozenset[str]:
        """The members that are barred from the run or from the whole federation."""
        return self.members & (self.banned | self.evicted.keys())

    def away(self, round_: int) -> frozenset[str]:
        """The members that must not be selected for a round."""
        later = {client for client, why in self.quarantined.items() if why.until > round_}
        return self.out | later

    @property
    def proposals(self) -> dict[str, Quarantine]:
        """The quarantines that wait for an operator's decision."""
        return {c: why for c, why in self.quarantined.items() if why.kind == "proposal"}

    @property
    def standing(self) -> Standing:
        """The barred clients in the form that the round engine needs."""
        clients = len(self.members)
        founders = clients if self.founders is None else self.founders
        quarantined = frozenset(self.quarantined)
        return Standing(clients, founders, self.out, quarantined, self.mode, self.reinstated)


@dataclass(frozen=True)
class ClientRunState:
    """What Redis holds about one client of a run, together with a summary of the run."""

    summary: RunSummary | None
    ticket: Ticket | None
    eviction: Bar | None
    """Why the client is evicted from the run."""
    barred: Bar | None = None
    """Why the client is barred from the whole federation."""
    slot: int | None = None
    """The client's slot; None if the client is not a member of the run."""
    answered: bool = False
    """Whether the client has accepted or declined the run."""
    receipt: Receipt | None = None
    """The receipt of the upload that the caller asked about; None if no receipt is stored."""


_BAR: TypeAdapter[Bar] = TypeAdapter(Bar)
SUMMARY_FIELDS = ("schema", "digest", "policy", "status", "phase", "round", "opened_at", "deadline")


def parse_summary(values: Sequence[str | None]) -> RunSummary | None:
    """Parses the fields in `SUMMARY_FIELDS` of a run's state; None if the run has not started."""
    raw = dict(zip(SUMMARY_FIELDS, values, strict=True))
    return _summary({name: text or "" for name, text in raw.items()}) if raw["schema"] else None


def parse_run(raw: Mapping[str, str]) -> RunDetails | None:
    """Parses the state of a run; None if the run has not started yet.

    Raises:
        ConfigurationError: the stored state has a schema that this version does not read.
    """
    if "schema" not in raw:
        return None
    if raw["schema"] != SCHEMA:
        raise ConfigurationError(f"Redis holds schema {raw['schema']}; this version reads {SCHEMA}")
    summary = _summary(raw)
    experiment = Experiment.from_tables(json.loads(raw["experiment"]))
    return RunDetails(
        schema=summary.schema,
        digest=summary.digest,
        policy=summary.policy,
        status=summary.status,
        phase=summary.phase,
        round=summary.round,
        opened_at=summary.opened_at,
        deadline=summary.deadline,
        experiment=experiment,
        spec=read_model(ModelSpec, raw["spec"]),
        selected=tuple(json.loads(raw.get("selected", "[]"))),
        # A worker of an earlier version leaves the field of an earlier round unchanged.
        examined=tuple(json.loads(raw.get("examined", "{}")).get(str(summary.round), ())),
        closing=raw.get("closing", "0-0"),
        snapshot=Snapshot.parse(raw["snapshot"]),
        mode=cast(Mode | None, raw.get("mode")),
        abstained=tuple(json.loads(raw.get("abstained", "[]"))),
        # In Redis, this field keeps its old name `seated`: a new name would need a new schema.
        slots_assigned="seated" in raw,
        # Older versions did not store this field: they seeded the draws with the experiment's seed.
        server_seed=int(raw.get("server_seed", experiment.seed)),
    )


def by_client(raw: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Parses a Redis hash of JSON objects, and sorts the objects by client id."""
    return {client: json.loads(raw[client]) for client in sorted(raw)}


def parse_bar(text: str) -> Bar:
    """Parses the stored reason why a client is barred."""
    return _BAR.validate_json(text, extra="ignore")


def _summary(raw: Mapping[str, str]) -> RunSummary:
    """Parses the fields in `SUMMARY_FIELDS`; a field without a value can be missing or empty."""
    deadline = raw.get("deadline")
    return RunSummary(
        schema=raw["schema"],
        digest=raw["digest"],
        policy=cast(RoundPolicy, raw["policy"]),
        status=cast(RunState, raw["status"]),
        phase=cast(Phase, raw["phase"]),
        round=int(raw["round"] or 0),
        opened_at=float(raw.get("opened_at") or 0),
        deadline=float(deadline) if deadline else None,
    )
