"""What the live table shows: the accuracies, the decisions and the time left."""

import io

import pytest
from rich.console import Console

from rampart_fl.services.console.display.live_table import MODELS, LiveTable
from rampart_fl.services.console.reports.result_table import result_table
from rampart_fl.shared.experiment.eviction import Decision, RequestedDecision
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord
from rampart_fl.shared.protocol.runs import RunStatus

RUNNING = RunStatus(
    run="f-1",
    name="f",
    experiment="5f" * 32,
    status="running",
    phase="published",
    round=0,
    rounds=4,
)


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


def test_round_is_described_in_the_words_of_the_final_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = {"correct_customized": 1.0, "correct_local": 2.0, "correct_personalized": 3.0}
    record = RoundRecord(
        round=0, status="published", metrics={"a": {"test_samples": 4.0, **metrics}}
    )
    with LiveTable() as table:
        table.show(RUNNING, [record])
    words = "received model 25.0 %  after local training 50.0 %  personal model 75.0 %"
    assert words in capsys.readouterr().err

    file = io.StringIO()
    console = Console(width=100, file=file)
    console.print(table.picture(RUNNING, [record]))
    shown = file.getvalue()
    assert all(word in shown for word in ("received", "after local", "personal"))
    final = result_table([{"experiment": "f", "evicted": [], "rounds": 1, "seconds": 1.0}], [None])
    assert all(words in final for words in MODELS.values())


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_live_table_fits_a_narrow_terminal_and_shows_the_decisions(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    metrics = {"correct_customized": 1.0, "correct_local": 2.0, "correct_personalized": 3.0}
    records = [
        RoundRecord(
            round=100 + number,
            status="published",
            participants=["client-b9dd51e23ce0"],
            norms={"client-b9dd51e23ce0": 2.0625},
            metrics={"client-b9dd51e23ce0": {"test_samples": 4.0, **metrics}},
            verdicts=[verdict("client-b9dd51e23ce0", "evicted")],
        )
        for number in range(3)
    ]
    file = io.StringIO()
    Console(width=width, file=file).print(LiveTable().picture(RUNNING, records))
    shown = file.getvalue()
    assert all(word in shown for word in ("round", "clients", "personal", "75.0 %"))
    assert "…" not in shown
    words = " ".join(shown.split())
    assert "1 of 4 published 0 of 0 updates 0 of 0 clients online 0 evicted 0 quarantined" in words
    assert "round 102: client-b9dd51e23ce0 evicted: 2 exceeds 1" in words
    assert ("2.06" in shown, "50.0 %" in shown) == (width >= 60, width >= 60)


def test_live_table_shows_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    records: list[RoundRecord] = []
    with LiveTable(clock=lambda: clock[0]) as table:
        for number in range(4):
            clock[0] += 60
            records.append(RoundRecord(round=number, status="published"))
            table.show(RUNNING, records)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition("  ")[2] for line in lines[1:3]] == ["2 min left", "1 min left"]
    assert not lines[0].endswith("left") and not lines[3].endswith("left")


def test_norms_are_called_honest_only_if_the_attackers_are_known() -> None:
    record = RoundRecord(round=0, status="published", norms={"ada": 2.0, "mallory": 40.0})

    def norms(table: LiveTable) -> dict[str, str]:
        return {name: text for name, text in table.cells(record).items() if name.endswith("norm")}

    assert norms(LiveTable()) == {"largest norm": "40"}
    assert norms(LiveTable(["mallory"])) == {"honest norm": "2", "hostile norm": "40"}
    assert norms(LiveTable([])) == {"honest norm": "40", "hostile norm": "-"}
    file = io.StringIO()
    Console(width=100, file=file).print(LiveTable().picture(RUNNING, [record]))
    assert "largest" in file.getvalue() and "honest" not in file.getvalue()


def test_live_table_says_what_the_run_waits_for() -> None:
    status = RUNNING.model_copy(update={"waits_for": "disk: too full"})
    line = str(LiveTable().picture(status, []).renderables[-1])
    assert "running  waits for disk: too full" in line
    line = str(LiveTable().picture(RUNNING, []).renderables[-1])
    assert "waits" not in line
