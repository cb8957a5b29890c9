"""The messages about runs: submissions, their place in the queue, acceptances, and members."""

from typing import Any

from pydantic import Field

from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.clients import Bar, Quarantine
from rampart_fl.shared.protocol.messages import (
    ClientId,
    Digest,
    Message,
    Phase,
    RunId,
    RunState,
    Ticket,
)
from rampart_fl.shared.protocol.reasons import NO_REASON, PRINTABLE, Reason

RUN_NAME = r"^[a-z0-9][a-z0-9-]{0,47}$"
LIVE: frozenset[RunState] = frozenset({"running", "paused", "stopping"})
"""The states of a run that is being executed."""
OVER: frozenset[RunState] = frozenset({"finished", "failed", "cancelled"})
"""The states of a run that has ended."""


class RunInfo(Message):
    """A run: its experiment, the operator who submitted it, and its progress."""

    run: RunId
    name: str = Field(examples=["digits-benign"])
    experiment: Digest = Field(description="digest of the experiment", examples=["5f" * 32])
    submission: str = Field(
        description="key; submissions with the same key create only one run", examples=["tuesday-1"]
    )
    submitted_at: float = Field(description="Unix time", examples=[1_772_357_400.0])
    submitted_by: str = Field(description="name of the operator", examples=["ada"])
    wait_until: float | None = Field(
        default=None, description="Unix time at which the run is cancelled if it has not started"
    )
    state: RunState = Field(default="queued", examples=["running"])
    waits_for: str = Field(
        default="",
        description="what the run waits for before its start, its next round, or its end",
    )
    reason: str = Field(default="", description="why the run failed or was cancelled")
    started_at: float | None = Field(default=None, description="Unix time")
    ended_at: float | None = Field(default=None, description="Unix time")
    round: int = Field(default=0, ge=0)
    rounds: int = Field(ge=1, examples=[30])
    clients: int = Field(default=0, ge=0, description="members of the run", examples=[20])
    evicted: int = Field(default=0, ge=0, description="evicted members")


class RunStatus(Message):
    """A run's current status."""

    run: str = Field(examples=["digits-benign-1"])
    name: str
    experiment: Digest
    status: RunState
    phase: Phase
    round: int
    rounds: int
    waits_for: str = Field(
        default="", description="what the run waits for before its next round, or before its end"
    )
    deadline: float | None = None
    clients: int = 0
    online: int = 0
    mode: Mode = "evict"
    evicted: list[str] = Field(default=[])
    quarantined: list[str] = Field(default=[], description="barred for some rounds")
    proposed: list[str] = Field(default=[], description="in quarantine until an operator decides")
    abstained: list[str] = Field(
        default=[],
        description="left out of the last round, but not barred, because the limit on barred "
        "clients was reached",
    )
    selected: list[str] = Field(default=[])
    examined: list[str] = Field(
        default=[], description="summoned clients; their uploads are judged, but not aggregated"
    )
    received: list[str] = Field(default=[])
    models: dict[str, str] = Field(default={})
    warnings: list[str] = Field(default=[])


class CheckRequest(Message):
    """An experiment to be checked."""

    experiment: dict[str, Any] | str = Field(
        description="the tables of the experiment's file, or the text of the file",
        examples=[
            {
                "name": "digits-small",
                "rounds": 3,
                "data": {"dataset": "digits", "clients": 6},
                "model": "logistic",
            }
        ],
    )


class RunRequest(CheckRequest):
    """A request to run an experiment; the run waits in a queue behind earlier submissions."""

    name: str | None = Field(
        default=None,
        pattern=RUN_NAME,
        description="first part of the run's id; by default, the experiment's name",
        examples=["tuesday"],
    )
    submission: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=PRINTABLE,
        description="a key that the caller chooses; repeating a key does not start another run",
        examples=["tuesday-1"],
    )
    wait_seconds: float | None = Field(
        default=None,
        gt=0,
        le=31_536_000,
        description="seconds until the run is cancelled if its first round has not begun",
        examples=[3600],
    )
    reason: Reason = Field(default=NO_REASON, examples=["the weekly comparison"])


class AcceptanceRequest(Message):
    """A client's answer to the offer to take part in a run."""

    accept: bool = Field(examples=[True])
    reason: str = Field(
        default="",
        max_length=500,
        pattern=PRINTABLE,
        description="why a client declines",
        examples=[""],
    )
    slot: int | None = Field(
        default=None,
        ge=0,
        le=99_999,
        description="slot that the client asks for; None accepts any slot",
        examples=[None],
    )


class Acceptance(Message):
    """A client's recorded answer to an offer. No client has a slot before the run starts."""

    run: RunId
    client_id: ClientId
    accept: bool
    reason: str = ""
    slot: int | None = Field(
        default=None, description="the client's slot; None if the client is not a member"
    )


class Member(Message):
    """A client's current state in one run."""

    client_id: ClientId
    accept: bool | None = Field(
        default=None, description="the client's answer; None before it answers"
    )
    reason: str = Field(default="", description="why the client declined")
    slot: int | None = Field(
        default=None, description="the client's slot; None if the client is not a member"
    )
    online: bool = False
    software: str = Field(
        default="", description="software that the client reports, such as `rampart-fl/0.1`"
    )
    barred: Bar | None = Field(
        default=None, description="why the client is barred from the whole federation"
    )
    evicted: bool = False
    eviction: Bar | None = Field(default=None, description="why the client is evicted")
    quarantine: Quarantine | None = Field(
        default=None, description="why the client is barred for some rounds, and until which round"
    )
    abstained: bool = Field(
        default=False,
        description="whether a detector asked for the client's eviction in the last round, but no "
        "more clients may be barred",
    )
    ticket: Ticket | None = None
