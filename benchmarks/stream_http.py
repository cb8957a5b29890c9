"""Times a round over HTTP whose updates exceed the limit on the pool's memory.

    python -m benchmarks.stream_http               25 clients with 10^8 numbers each: 40 GB of disk
    python -m benchmarks.stream_http --dim 1e7 --rules median

For each rule, Redis, the api and the worker start as in a deployment. One more process hosts all
clients. After all clients have joined, they take turns: each client loads the model and uploads its
update. Before the last upload, the benchmark drops the pages of all blobs and of the worker's pool
from the page cache. The mathematics therefore begin with the last update in the page cache, but no
other. The table compares the time of the round's mathematics with the two floors of `stream.py`,
measured after the servers have stopped. Memory is the largest resident size of the api and the
worker together, including mapped pages, minus their size before the first client loads the model.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.crowd import CrowdFederation
from benchmarks.idle_clients import perceptron
from benchmarks.rounds import hidden_of
from benchmarks.stream import (
    PIECE,
    RULES,
    arithmetic_floor,
    forget,
    mathematics,
    options,
    reading_floor,
    table,
)
from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.identity import establish
from rampart_fl.shared.agent.membership import next_run
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol import wire

PARTS = ("api", "worker")
HEARTBEAT = 5.0
"""Seconds between two heartbeats of a client that waits for its turn."""
BUSY = 0.05
"""An idle worker uses less than this share of a processor."""
LONGEST = 7200
"""Seconds after which a round closes even if updates are missing."""
COLUMNS = (
    "rule",
    "models",
    "posting, s",
    "mathematics, s",
    "of it storing, s",
    "reading and writing, s",
    "arithmetic, s",
    "ratio to the larger floor",
    "api, GiB",
    "worker, GiB",
    "together, GiB",
)


def experiment(rule: str, dim: int, clients: int) -> Experiment:
    """An experiment of one round, whose model is a perceptron with about `dim` parameters."""
    return Experiment.from_tables(
        {
            "name": "stream-http",
            "rounds": 1,
            "data": {"dataset": "digits", "clients": clients},
            "model": {"name": "mlp", "hidden": [hidden_of(dim)]},
            "phases": {"collecting": {"time": {"max": LONGEST}}},
            "server": RULES[rule].server,
        }
    )


# -- the clients -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def online(connections: list[AggregatorClient]) -> AsyncIterator[None]:
    """Sends heartbeats for all clients until the context ends."""

    async def beat() -> None:
        while True:
            for connection in connections:
                await connection.heartbeat()
            await asyncio.sleep(HEARTBEAT)

    beating = asyncio.create_task(beat())
    yield
    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating


async def post_all(url: str, tokens: list[str], folder: Path, hidden: int) -> None:
    """Joins with all clients, and uploads one update after another.

    Waits for a line on stdin before the first upload, and again before the last one.
    """

    async def accept(run: str, part: dict[str, Any]) -> tuple[bool, str, int | None]:
        del run, part
        return True, "", None

    async def joined(number: int, token: str) -> tuple[AggregatorClient, str]:
        identity = await establish(url, folder / str(number), token)
        connection = AggregatorClient(url, identity.token)
        ticket = await next_run(connection, accept, identity.client_id or "")
        return connection, ticket.run

    members = await asyncio.gather(*map(joined, range(len(tokens)), tokens))
    print("joined", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    spec = perceptron(hidden)
    async with online([connection for connection, _ in members]):
        for number, (connection, run) in enumerate(members):
            received = await connection.ticket_and_model(None, "", run=run)
            assert received is not None
            ticket, model = received
            if model is None:
                model = await connection.model(run, ticket.models["model"])
            assert len(model) > 4 * spec.dim
            del model, received
            vector_D = np.random.default_rng(number).standard_normal(spec.dim, np.float32)
            vector_D *= np.float32(1e-3)
            upload = wire.encode(spec, vector_D, {"report": '{"samples": 100}'})
            del vector_D
            if number == len(members) - 1:
                print("last", flush=True)
                await asyncio.to_thread(sys.stdin.readline)
            await connection.upload(run, ticket.round, "update", upload)
            del upload
    print("posted", flush=True)
    for connection, _ in members:
        await connection.close()


# -- the round -------------------------------------------------------------------------------------


class Memory(threading.Thread):
    """Samples the resident bytes of processes: `idle` at the start, and the `peak` afterwards."""

    def __init__(self, pids: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self.idle = self._now()
        self.peak = dict(self.idle)
        self.on = True

    def _now(self) -> dict[str, int]:
        sizes = {n: int(p.memory_info().rss) for n, p in self._processes.items()}
        return {**sizes, "together": sum(sizes.values())}

    def run(self) -> None:
        while self.on:
            for name, size in self._now().items():
                self.peak[name] = max(self.peak[name], size)
            time.sleep(0.01)  # The interval between two samples.

    @property
    def added(self) -> dict[str, float]:
        """The peak minus the idle size, in GiB."""
        return {name: (self.peak[name] - idle) / 2**30 for name, idle in self.idle.items()}


def await_idle(process: int) -> None:
    """Waits until a process hardly uses a processor; the worker has then loaded all updates."""
    times = psutil.Process(process).cpu_times
    while True:
        before = sum(times()[:2])
        time.sleep(1.0)  # The processor time of this span is the measurement.
        if sum(times()[:2]) - before < BUSY:
            return


def forget_updates(worker: int, blobs: Path) -> None:
    """Drops all blobs, and a pool that the worker keeps in a file, from the page cache."""
    files = [path for path in blobs.rglob("*") if path.is_file()]
    for line in Path(f"/proc/{worker}/maps").read_text().splitlines():
        if str(blobs) in line and line.endswith("(deleted)"):  # The pool's file has no name.
            files.append(Path(f"/proc/{worker}/map_files", line.split()[0]))
    for path in files:
        with path.open("rb") as file:
            forget(file.fileno())


def round_over_http(given: argparse.Namespace, rule: str, folder: Path) -> dict[str, Any]:
    """Runs one round; returns its seconds, its number of models, and the servers' memory."""
    planned = experiment(rule, given.dim, given.clients)
    settings = {
        "RAMPART_POOL_MEMORY": str(given.memory),
        "RAMPART_THREADS": str(given.threads),
        "OMP_NUM_THREADS": str(given.threads),
    }
    with CrowdFederation(planned, folder, settings=settings) as federation:
        tokens = federation.operator.mint_unbound(given.clients).tokens
        load = [sys.executable, "-m", "benchmarks.stream_http", "--load", federation.url]
        load += ["--folder", str(folder / "clients"), "--dim", str(given.dim)]
        with subprocess.Popen(
            load, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as clients:
            assert clients.stdin is not None
            assert clients.stdout is not None
            try:
                clients.stdin.write(json.dumps(tokens) + "\n")
                clients.stdin.flush()
                assert clients.stdout.readline() == "joined\n", "the clients did not join"
                memory = Memory({part: federation.processes[part].pid for part in PARTS})
                memory.start()
                began = time.perf_counter()
                clients.stdin.write("go\n")
                clients.stdin.flush()
                assert clients.stdout.readline() == "last\n", "the clients did not post"
                worker, paused = federation.processes["worker"].pid, time.perf_counter()
                await_idle(worker)
                forget_updates(worker, (folder / "blobs").resolve())
                began += time.perf_counter() - paused
                clients.stdin.write("go\n")
                clients.stdin.flush()
                assert clients.stdout.readline() == "posted\n", "the clients did not post"
                posting = time.perf_counter() - began
                while not (records := federation.run.rounds()):
                    federation.processes.check(*PARTS, "redis")
                    time.sleep(0.5)  # Polling is exact enough, because times come from the record.
                memory.on = False
                memory.join()
            finally:
                clients.kill()
    record = records[0]
    steps = record.timings
    return {
        "models": len({record.models["global"], *record.customized.values()}),
        "posting": posting,
        "mathematics": mathematics(steps),
        "store": steps["store"],
        "memory": memory.added,
    }


def cell(given: argparse.Namespace, rule: str) -> dict[str, Any]:
    """The round of a rule over HTTP, and its floors."""
    server, passes, kept = RULES[rule]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        result = round_over_http(given, rule, Path(folder))
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        small = given.dim // given.scale
        seconds = arithmetic_floor(server, Path(folder), small, given.clients)
        result["arithmetic"] = given.scale * seconds
    with tempfile.TemporaryFile(dir=given.folder) as pool:
        piece = np.random.default_rng(0).bytes(PIECE)
        for _ in range(given.clients * given.dim * 4 // PIECE):
            pool.write(piece)
        pool.flush()
        place = Path(given.folder or tempfile.gettempdir())
        written = result["models"] + kept * given.clients
        result["reading"] = reading_floor(pool.fileno(), passes, written, given.dim, place)
    return result


def main() -> None:
    """Measures all rules, and prints the table."""
    parser = options(__doc__)
    parser.add_argument("--load", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        tokens = json.loads(sys.stdin.readline())
        asyncio.run(post_all(given.load, tokens, Path(given.folder), hidden_of(given.dim)))
        return
    print(table(COLUMNS))
    for rule in given.rules:
        result = cell(given, rule)
        floor = max(result["reading"], result["arithmetic"])
        names = ("posting", "mathematics", "store", "reading", "arithmetic")
        columns = [
            rule,
            str(result["models"]),
            *(f"{result[name]:.1f}" for name in names),
            f"{result['mathematics'] / floor:.2f}",
            *(f"{result['memory'][part]:.2f}" for part in (*PARTS, "together")),
        ]
        print("| " + " | ".join(columns) + " |", flush=True)


if __name__ == "__main__":
    main()
