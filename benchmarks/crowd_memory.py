"""Profiles the memory that the api holds for each waiting client.

    python -m benchmarks.crowd_memory [--clients 1000 3000] [--rows 25] [--json]

Each number of clients is measured twice. First, the api runs as in a deployment, and the benchmark
measures its resident memory. Then the api runs with tracemalloc, which itself needs memory, and the
benchmark records the blocks that Python's allocators hold, by the line that allocated them, and the
number of objects of each type. Both are differences between the idle api and the api while all
clients but one wait, divided by the number of waiting clients.

An extension, such as uvloop, has no lines. Its blocks count for the line that called it, which is
`Runner.run` for everything that the event loop allocates itself.
"""

import argparse
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.crowd import HIDDEN, CrowdFederation, Meter, experiment

AGGREGATOR = "rampart_fl.services.aggregator"
OUT = "CROWD_MEMORY_OUT"
"""Environment variable of a traced api: the file for its next snapshot."""
WRITING = 120.0
"""Maximum number of seconds in which a traced api writes a snapshot."""


# -- in the api ------------------------------------------------------------------------------------


def serve_traced() -> None:
    """Runs an aggregator that writes a snapshot of its memory on SIGUSR1."""
    signal.signal(signal.SIGUSR1, lambda number, frame: write_snapshot(Path(os.environ[OUT])))
    tracemalloc.start()
    runpy.run_module(AGGREGATOR, run_name="__main__")


def write_snapshot(path: Path) -> None:
    """Writes the bytes of each line, and the objects of each type that the collector tracks."""
    gc.collect()
    lines = tracemalloc.take_snapshot().statistics("lineno")
    places = {f"{s.traceback[0].filename}:{s.traceback[0].lineno}": s.size for s in lines}
    types = Counter(type(thing).__qualname__ for thing in gc.get_objects())
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"lines": places, "types": types}))
    part.rename(path)


# -- outside of the api ----------------------------------------------------------------------------


class TracedFederation(CrowdFederation):
    """A federation whose api writes snapshots of its memory."""

    modules: ClassVar[dict[str, str]] = {"api": "benchmarks.crowd_memory"}

    def variables(self) -> dict[str, str]:
        """Environment variables of the aggregator; one names the file for a snapshot."""
        return {OUT: str(self.folder / "snapshot.json"), **super().variables()}

    def snapshot(self) -> dict[str, Counter[str]]:
        """The api's memory now: bytes by line, and objects by type."""
        path = self.folder / "snapshot.json"
        os.kill(self.processes["api"].pid, signal.SIGUSR1)
        give_up = time.monotonic() + WRITING
        while not path.exists():
            self.processes.check("api")
            if time.monotonic() > give_up:
                raise SystemExit("the api wrote no snapshot")
            time.sleep(0.05)  # The interval between two looks.
        snapshot = {name: Counter(sizes) for name, sizes in json.loads(path.read_text()).items()}
        path.unlink()
        return snapshot


def waiting(clients: int, traced: bool) -> dict[str, Any]:
    """The api's memory per waiting client: bytes, and with `traced`, bytes by line and objects."""
    kind = TracedFederation if traced else CrowdFederation
    planned, waiters = experiment(clients, 1.0, 1), clients - 1
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        kind(planned, Path(folder)) as federation,
    ):
        meter = Meter(federation)
        tokens = federation.operator.mint_unbound(clients).tokens
        before = federation.snapshot() if isinstance(federation, TracedFederation) else {}
        idle = meter.memory("api")
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.crowd_clients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as load:
            assert load.stdin is not None
            assert load.stdout is not None
            given = {"port": federation.port, "hidden": HIDDEN, "run": federation.run.id}
            load.stdin.write(json.dumps({**given, "tokens": tokens, "joining": 256}) + "\n")
            load.stdin.flush()
            try:
                load.stdout.readline()  # All clients but one have joined.
                meter.settle()
                resident = (meter.memory("api") - idle) / waiters
                after = federation.snapshot() if isinstance(federation, TracedFederation) else {}
            finally:
                load.kill()
    parts = {
        name: {key: (after[name][key] - before[name][key]) / waiters for key in after[name]}
        for name in after
    }
    return {"resident": resident, **parts}


def short(place: str) -> str:
    """A line's place, without the folders before its package."""
    for mark in ("site-packages/", "rampart_fl/", "lib/python3."):
        if mark in place:
            return place.rpartition(mark)[2]
    return "/".join(place.rsplit("/", 3)[1:])


def main() -> None:
    """Measures each number of clients, and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 3000])
    parser.add_argument("--rows", type=int, default=25, help="rows of each table")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args()
    plain = {clients: waiting(clients, False) for clients in given.clients}
    traced = {clients: waiting(clients, True) for clients in given.clients}
    if given.json:
        print(json.dumps({"plain": plain, "traced": traced}))
        return
    head = "".join(f" {clients:,} clients |" for clients in given.clients)
    rule = "---:|" * len(given.clients)
    last = traced[given.clients[-1]]

    def row(name: str, values: list[float]) -> None:
        print(f"| {name} |" + "".join(f" {value:,.2f} |" for value in values))

    print(f"| KiB per waiting client |{head}\n|---|{rule}")
    row("resident", [plain[n]["resident"] / 1024 for n in given.clients])
    row("in Python's allocators", [sum(traced[n]["lines"].values()) / 1024 for n in given.clients])
    for place, _ in Counter(last["lines"]).most_common(given.rows):
        sizes = [traced[n]["lines"].get(place, 0.0) / 1024 for n in given.clients]
        row(f"`{short(place)}`", sizes)
    print(f"\n| objects per waiting client |{head}\n|---|{rule}")
    for name, _ in Counter(last["types"]).most_common(given.rows):
        row(f"`{name}`", [traced[n]["types"].get(name, 0.0) for n in given.clients])


if __name__ == "__main__":
    if OUT in os.environ:
        serve_traced()
    else:
        main()
