"""Estimates of memory, disk and traffic, compared with a real run."""

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console import testing
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.estimate import estimate
from tests.integration.in_process_federation import Scripted

FACTOR = 2.0
"""The estimates must be within this factor of the measured values."""
CLIENTS, ROUNDS = 8, 3


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[list[int]]:
    """Samples the bytes of all files in a folder, as long as the context lasts."""
    sizes, on = list[int](), True

    def sample() -> None:
        while on:
            total = 0
            for path in folder.rglob("*"):
                with contextlib.suppress(FileNotFoundError):
                    total += path.stat().st_size if path.is_file() else 0
            sizes.append(total)
            time.sleep(0.02)  # Until the next sample.

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        on = False
        thread.join()


def peak_memory(pid: int) -> int:
    """The peak memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(kib)


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    "server",
    [
        pytest.param({}, id="plain", marks=pytest.mark.long),
        pytest.param({"customizer": "fedcap"}, id="fedcap"),
        pytest.param({"detectors": ["cross_round"]}, id="remembering", marks=pytest.mark.long),
    ],
)
def test_estimates_are_within_a_factor_of_two_of_a_real_run(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    """The rows are large, so that they make up most of the blobs."""
    experiment = Experiment.from_tables(
        {
            "name": "large",
            "rounds": ROUNDS,
            "data": {"dataset": "digits", "clients": CLIENTS},
            "model": {"name": "mlp", "hidden": [20_000]},
            "server": server,
        }
    )
    expected = estimate(experiment)
    with testing.run(experiment, tmp_path) as running, watched(tmp_path / "blobs") as sizes:
        for name in experiment.client_names:
            running.take_part(name, Scripted(name))
        running.wait("done", patience=240)
        memory = peak_memory(running.local.processes["aggregator"].pid)
        records = running.run.rounds()
    down = [size for record in records for size in record.bytes_down.values()]
    up = [size for record in records for size in record.bytes_up.values()]
    assert len(records) == ROUNDS
    for result, estimated in (
        (memory, expected.memory_bytes),
        (max(sizes), expected.disk_bytes),
        (max(down), expected.down_bytes),
        (max(up), expected.up_bytes),
        ((sum(down) + sum(up)) / CLIENTS, expected.client_bytes),
    ):
        assert 1 / FACTOR < result / estimated < FACTOR, (result, estimated)
