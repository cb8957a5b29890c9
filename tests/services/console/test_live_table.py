"""The decisions and the time left that the live table shows."""

import pytest

from rampart_fl.services.console.live_table import LiveTable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Decision, RequestedDecision
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord
from rampart_fl.shared.protocol.runs import RunStatus


def verdict(
    client: str, decision: Decision, asked: RequestedDecision | None = None
) -> VerdictRecord:
    return VerdictRecord(
        client=client,
        decision=decision,
        asked=asked,
        detector="test",
        score=2.0,
        threshold=1.0,
        reason="2 exceeds 1",
    )


@pytest.mark.parametrize(
    ("verdicts", "cell"),
    [
        ([verdict("a", "accepted")], "-"),
        ([verdict("a", "evicted"), verdict("b", "accepted")], "a evicted: 2 exceeds 1"),
        ([verdict("a", "quarantined", "evicted")], "a quarantined: 2 exceeds 1"),
        (
            [verdict("a", "proposed", "evicted"), verdict("b", "rejected")],
            "a proposed: 2 exceeds 1; rejected b",
        ),
        (
            [verdict("a", "abstained", "evicted"), verdict("b", "abstained", "evicted")],
            "abstained a, b",
        ),
        (
            [
                verdict("a", "accepted", "evicted"),
                verdict("b", "accepted", "rejected"),
                verdict("c", "accepted", "evicted"),
            ],
            "would be evicted: a, c; would be rejected: b",
        ),
    ],
)
def test_decisions_are_shown_in_words(verdicts: list[VerdictRecord], cell: str) -> None:
    record = RoundRecord(round=3, status="published", verdicts=verdicts)
    assert LiveTable().cells(record)["decisions"] == cell


def test_live_table_shows_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    experiment = Experiment.load("digits-benign")
    status = RunStatus(
        run="f-1",
        name="f",
        experiment=experiment.digest(),
        status="running",
        phase="collecting",
        round=0,
        rounds=4,
    )
    records: list[RoundRecord] = []
    with LiveTable(clock=lambda: clock[0]) as table:
        for number in range(4):
            clock[0] += 60
            records.append(RoundRecord(round=number, status="published"))
            table.show(status, records)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition("  ")[2] for line in lines[1:3]] == ["2 min left", "1 min left"]
    assert not lines[0].endswith("left") and not lines[3].endswith("left")


def test_live_table_says_what_the_run_waits_for() -> None:
    status = RunStatus(
        run="f-1",
        name="f",
        experiment="5f" * 32,
        status="running",
        phase="published",
        round=0,
        rounds=4,
        waits_for="disk: too full",
    )
    line = str(LiveTable().picture(status, []).renderables[-1])
    assert "running  waits for disk: too full" in line
    line = str(LiveTable().picture(status.model_copy(update={"waits_for": ""}), []).renderables[-1])
    assert "waits" not in line
