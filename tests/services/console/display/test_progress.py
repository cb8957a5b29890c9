"""Progress: an estimate of the time left; without a terminal, it is printed as lines."""

import pytest

from rampart_fl.services.console.display.progress import Pace, Progress


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_left_is_estimated_from_the_pace() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.time_left(0, 10) == "", "nothing is known before the first steps"
    estimates = []
    for done in range(1, 11):
        clock.now += 30
        estimates.append(pace.time_left(done, 10))
    assert estimates[1] == "4 min left"
    assert estimates[-3:] == ["1 min left", "30 s left", ""]
    assert estimates[2] == "3 min 30 s left", "in the format of `rampart compare`"


def test_lines_are_printed_at_intervals_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with Progress("rounds read", 100, every=5.0, clock=clock) as progress:
        for done in range(1, 101):
            clock.now += 0.25
            progress.show(done)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "20/100 rounds read, 20 s left",
        "40/100 rounds read, 15 s left",
        "60/100 rounds read, 10 s left",
        "80/100 rounds read, 5 s left",
        "100/100 rounds read",
    ]


def test_nothing_is_printed_before_the_first_interval(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("rounds read", clock=clock) as progress:
        clock.now = 1.0
        progress.show(1, 2)
    assert capsys.readouterr() == ("", "")
    clock.now = 6.0
    progress.show(1, 2, line="the first half")
    assert capsys.readouterr().err == "1/2 the first half\n"


def test_progress_bar_is_shown_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Progress("rounds read", 2, every=0.0) as progress:
        progress.show(1, label="round 0")
    output = capsys.readouterr().err
    assert "round 0" in output and "50%" in output and "1/2" not in output
