"""The history of one client over all runs of a federation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rampart_fl.services.console.reports.run_reader import RunReader
from rampart_fl.shared.protocol.messages import RunState
from rampart_fl.shared.protocol.runs import Member, RunInfo
from rampart_fl.shared.protocol.stored_rounds import (
    ABSENT,
    LATE,
    VERDICT_CODES,
    VerdictMatrix,
)

DECISIONS: Mapping[str, str] = {
    **{code: decision for decision, code in VERDICT_CODES.items()},
    LATE: "late",
    ABSENT: "absent",
}


@dataclass(frozen=True)
class RunParticipation:
    """What one client did in one run.

    Args:
        run: id of the run.
        state: state of the run, such as "finished".
        answer: "accepted", "declined", or "" if the client gave no answer.
        slot: the client's slot; None if the client is not a member.
        decisions: how often each decision was made about the client, and how often the client's
            update was late or absent.
        barred: why the client is evicted or in quarantine; "" if the client is not barred.
        reason: why the client declined.
    """

    run: str
    state: RunState
    answer: str
    slot: int | None
    decisions: dict[str, int]
    barred: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        """The fields of this object as JSON values."""
        return asdict(self)


def history(readers: Iterable[RunReader], client: str) -> Iterator[RunParticipation]:
    """What a client did in each of the runs; leaves out runs that do not list the client.

    The aggregator's responses contain only this client's row, so a response is small even if the
    run is large.
    """
    for reader in readers:
        for member in reader.run.members(client) if reader.started else ():
            yield part(reader.info, member, reader.matrices(client), client)


def part(
    info: RunInfo, member: Member, matrices: Iterable[VerdictMatrix], client: str
) -> RunParticipation:
    """What a client did in a run.

    Args:
        info: the run.
        member: the client's state in the run.
        matrices: the verdicts of the run's rounds.
        client: the client's id.
    """
    counts = Counter[str]()
    for matrix in matrices:
        if client in matrix.clients:
            counts.update(matrix.decisions[matrix.clients.index(client)])
    barred = member.eviction or member.quarantine
    return RunParticipation(
        run=info.run,
        state=info.state,
        answer={True: "accepted", False: "declined", None: ""}[member.accept],
        slot=member.slot,
        decisions={DECISIONS[code]: n for code, n in sorted(counts.items()) if code in DECISIONS},
        barred="" if barred is None else barred.reason,
        reason=member.reason,
    )
