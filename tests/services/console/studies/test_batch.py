"""Cached runs and parallel runs."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies.batch import follow, headline, run_all, run_all_cached
from rampart_fl.services.console.studies.pools import pool
from rampart_fl.shared.runtime import cpus


def test_cached_runs_are_skipped_and_failed_runs_are_repeated(tmp_path: Path) -> None:
    ran = []

    def run(n: int) -> dict[str, Any]:
        ran.append(n)
        if n == 2 and ran.count(2) == 1:
            return {"error": "once"}
        return {"error": n / 4}

    def batch() -> list[tuple[int, dict[str, Any]]]:
        return list(run_all_cached(run, [1, 2, 3], lambda n: tmp_path / "folder" / f"{n}.json"))

    whole = [(n, {"error": n / 4}) for n in (1, 2, 3)]
    assert batch() == [whole[0], (2, {"error": "once"}), whole[2]]
    assert sorted(batch()) == sorted(batch()) == whole
    assert ran == [1, 2, 3, 2]
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == ["1.json", "2.json", "3.json"]


def test_run_with_an_empty_cache_file_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.touch()
    assert list(run_all_cached(lambda n: {"accuracy": 0.5}, [1], lambda n: path)) == [
        (1, {"accuracy": 0.5})
    ]
    assert list(run_all_cached(lambda n: {}, [1], lambda n: path)) == [(1, {"accuracy": 0.5})]


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_item_is_returned_with_its_own_figures(jobs: int) -> None:
    result = dict(run_all(lambda n: {"square": n * n}, range(7), pool(jobs, threads=True)))
    assert result == {n: {"square": n * n} for n in range(7)}


@pytest.mark.parametrize("jobs", [1, 3])
def test_exception_in_one_run_is_raised_from_the_batch(jobs: int) -> None:
    def run(n: int) -> dict[str, Any]:
        if n == 3:
            raise ValueError("third")
        return {}

    with pytest.raises(ValueError, match="third"):
        list(run_all(run, range(7), pool(jobs, threads=True)))


def test_one_line_per_run_is_printed_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    runs = iter([(1, {"accuracy": 0.5}), (2, {"error": 0.25}), (3, {"error": "PreconditionError"})])
    follow("all", 3, runs, lambda n: f"run {n}", lambda n, figures: seen.append(n))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "1/3 run 1: accuracy 0.5",
        "2/3 run 2: error 0.25",
        "3/3 run 3: PreconditionError",
    ]
    assert seen == [1, 2, 3]
    assert headline({"accuracy": None}) == "accuracy None"
    assert headline({"accuracy_local": 0.5}, "accuracy_local") == "accuracy_local 0.5"


def test_time_left_is_printed_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each run takes 90 seconds on the clock; a single run gives no estimate."""
    clock = [0.0]

    def runs() -> Iterator[tuple[int, dict[str, Any]]]:
        for number in range(1, 5):
            clock[0] += 90
            yield number, {"accuracy": 0.5}

    follow("all", 4, runs(), lambda n: f"run {n}", lambda n, figures: None, clock=lambda: clock[0])
    assert [line.partition(", ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "",
        "3 min left",
        "1 min 30 s left",
        "",
    ]


SLOW = """
import os, signal, sys, time
from pathlib import Path
from rampart_fl.services.console.studies.batch import run_all
from rampart_fl.services.console.studies.pools import pool


def run(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)
    return {}


def interrupt(number, frame):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    list(run_all(run, sys.argv[2:], pool(ray="local") if sys.argv[1] == "ray" else pool(jobs=2)))
"""


@pytest.mark.parametrize("where", ["processes", pytest.param("ray", marks=pytest.mark.ray)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.processes
def test_no_run_outlives_the_process_that_started_it(
    where: str, number: signal.Signals, tmp_path: Path
) -> None:
    if where == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: make test-ray checks that its runs end with their study")
    script, paths = tmp_path / "slow.py", [tmp_path / "0", tmp_path / "1"][: cpus.threads()]
    script.write_text(SLOW)
    root = Path(__file__).parents[4]
    with subprocess.Popen(
        [sys.executable, str(script), where, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        stderr=subprocess.DEVNULL,
    ) as started:
        until(lambda: all(path.exists() and path.read_text() for path in paths))
        started.send_signal(number)
        started.wait(30)
    for path in paths:
        until(lambda path=path: not alive(path.read_text()))


def alive(process: str) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(true: Callable[[], bool], patience: float = 60) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
