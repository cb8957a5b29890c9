"""Measures seconds per round and server memory without training, beside three lower bounds.

    python benchmarks/rounds.py [--sizes 1e5 1e6 1e7] [--clients 20] [--rounds 7] [--json]
    python benchmarks/rounds.py --steps runs/digits-sign-flip-...    the time of each step

One run measures all of the following on loopback, with one process per client:

    sockets    the same bytes over plain TCP, a thread per client
    echo       a minimal FastAPI server and httpx: one POST per client and round
    durable    echo, and in addition every body is written to a file and fsynced
    rampart    weighted_mean and one global model: validation, durable blobs, Redis with fsync
    fedcap     rampart with FedCAP's customized models, which are one more blob per client

`sockets`, `echo` and `durable` are the lower bounds. In each of their rounds, the server also
returns the mean of all uploads to every client. Figures are medians over rounds without the first
round. Memory is the server's peak minus its size before the first client.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import uvloop

HERE = Path(__file__).resolve()
FLOORS = HERE.with_name("floors.py")


# -- rampart ---------------------------------------------------------------------------------------


def hidden_of(dim: int) -> int:
    """The number of hidden units for which the perceptron has approximately `dim` parameters."""
    return max(1, round((dim - 10) / 75))


def experiment_of(dim: int, clients: int, rounds: int, fedcap: bool) -> dict[str, object]:
    """An experiment whose model is a perceptron on 64 inputs with about `dim` parameters."""
    server: dict[str, object] = {"rule": [{"name": "weighted_mean"}]}
    if fedcap:
        server["customizer"] = {"name": "fedcap"}
    return {
        "name": f"rounds-{dim}{'-fedcap' if fedcap else ''}",
        "rounds": rounds,
        "data": {"dataset": {"name": "digits"}, "clients": clients},
        "model": {"name": "mlp", "hidden": [hidden_of(dim)]},
        "server": server,
    }


async def rampart_client(url: str, join_token: str, folder: Path, dim: int, number: int) -> None:
    # Import this here, so that the processes of the lower bounds need no time or memory for it.
    sys.path.insert(0, str(HERE.parents[1]))
    from benchmarks.idle_clients import perceptron, take_part

    await take_part(url, join_token, folder, perceptron(hidden_of(dim)), number)


# -- running ---------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Samples a process's resident memory in bytes: `idle` at the start, then the `peak`."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.idle = self.peak = self._process.memory_info().rss
        self.on = True

    def run(self) -> None:
        while self.on:
            try:
                self.peak = max(self.peak, self._process.memory_info().rss)
            except psutil.Error:
                return
            time.sleep(0.02)


def started(*arguments: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=environment)


def measure_floor(kind: str, clients: int, dim: int, rounds: int) -> tuple[list[float], int]:
    from rampart_fl.services.console.launcher.processes import free_port

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        out, port = Path(folder) / "stamps.json", free_port()
        server = started(FLOORS, f"{kind}-server", clients, dim, rounds, port, out)
        time.sleep(2.0)
        watch = Watch(server.pid)
        watch.start()
        members = [
            started(FLOORS, f"{kind.replace('durable', 'echo')}-client", i, dim, rounds, port)
            for i in range(clients)
        ]
        try:
            for member in members:
                member.wait(600)
            stamps = json.loads(out.read_text())
        finally:
            watch.on = False
            for process in [*members, server]:
                process.kill()
                process.wait()
    return [b - a for a, b in pairwise(stamps)], watch.peak - watch.idle


def measure_rampart(
    clients: int, dim: int, rounds: int, fedcap: bool
) -> tuple[list[float], int, dict[str, float]]:
    from rampart_fl.services.console.launcher.local import LocalFederation
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.runtime import cpus

    experiment = Experiment.from_tables(experiment_of(dim, clients, rounds, fedcap))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        threads = {"RAMPART_THREADS": str(cpus.threads())}
        with LocalFederation(experiment, Path(folder), settings=threads) as federation:
            tokens = federation.operator.mint(experiment.client_names).tokens
            time.sleep(2.0)
            watch = Watch(federation.processes["aggregator"].pid)
            watch.start()
            members = [
                started(HERE, "--client", federation.url, token, f"{folder}/c{i}", dim, i)
                for i, token in enumerate(tokens)
            ]
            try:
                while federation.operator.status().phase != "done":
                    federation.processes.check("aggregator", "redis")
                    time.sleep(0.5)
            finally:
                watch.on = False
                for member in members:
                    member.kill()
                    member.wait()
            records = federation.operator.rounds()
    stamps = [record.closed_at for record in records]
    steps = {
        step: statistics.median(r.timings[step] for r in records[1:]) for step in records[0].timings
    }
    gaps = [b - a for a, b in pairwise(stamps)]
    return gaps, watch.peak - watch.idle, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--steps", type=Path, help="print the steps of this run folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.steps is not None:
        tell_steps(given.steps)
        return
    rows = []
    for dim in (int(size) for size in given.sizes):
        medians: dict[str, float] = {}
        for kind in given.kinds:
            gaps, memory, steps = KINDS[kind](given.clients, dim, given.rounds)
            medians[kind] = statistics.median(gaps)
            pool = 4 * given.clients * dim
            ratio = medians[kind] / medians["durable"] if "durable" in medians else None
            rows.append(
                {
                    "parameters": dim,
                    "kind": kind,
                    "seconds": medians[kind],
                    "best": min(gaps),
                    "of_durable": ratio,
                    "memory_mib": memory / 2**20,
                    "memory_of_pool": memory / pool,
                    "bound_mib": (1.3 * pool) / 2**20 + 64,
                    "steps": steps,
                }
            )
            print(
                f"{dim:9d} {kind:8s} {medians[kind]:8.4f} s/round (best {min(gaps):.4f}) "
                f"{'' if ratio is None else f'{ratio:5.2f} x durable '} "
                f"server +{memory / 2**20:.0f} MiB ({memory / pool:.2f} x pool) "
                + " ".join(f"{k} {v:.3f}" for k, v in steps.items()),
                file=sys.stderr,
                flush=True,
            )
    if given.json:
        print(json.dumps(rows))
        return
    print("| parameters | | s/round | of durable | server memory, MiB | of the pool |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        of = "-" if row["of_durable"] is None else f"{row['of_durable']:.2f}"
        print(
            f"| {row['parameters']:,} | {row['kind']} | {row['seconds']:.4f} | {of} | "
            f"{row['memory_mib']:.0f} | {row['memory_of_pool']:.2f} |"
        )


def tell_steps(folder: Path) -> None:
    """Prints the median seconds of each step over all rounds of a run except the first."""
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    timings = [json.loads(line)["timings"] for line in lines][1:]
    print("| step | median, s | share |")
    print("|---|---|---|")
    medians = {step: statistics.median(t[step] for t in timings) for step in timings[0]}
    # The step `load` overlaps with the collection of updates, so it does not count twice.
    total = sum(medians.values()) - medians["load"]
    for step, seconds in medians.items():
        share = "within collect" if step == "load" else f"{100 * seconds / total:.1f} %"
        print(f"| {step} | {seconds:.4f} | {share} |")


def _floor(kind: str) -> Callable[[int, int, int], tuple[list[float], int, dict[str, float]]]:
    return lambda clients, dim, rounds: (*measure_floor(kind, clients, dim, rounds), {})


KINDS: dict[str, Callable[[int, int, int], tuple[list[float], int, dict[str, float]]]] = {
    "sockets": _floor("sockets"),
    "echo": _floor("echo"),
    "durable": _floor("durable"),
    "rampart": lambda clients, dim, rounds: measure_rampart(clients, dim, rounds, False),
    "fedcap": lambda clients, dim, rounds: measure_rampart(clients, dim, rounds, True),
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        url, join_token, folder, dim, number = sys.argv[2:]
        # The event loop that agents use.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(rampart_client(url, join_token, Path(folder), int(dim), int(number)))
    else:
        main()
