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
round. Memory is the server's peak minus its size before the first client. Processor time is the
user and system time of all threads, divided by the number of updates. In `rampart`, the server is
one process with the api and the worker. `--kinds split` measures them as two processes.
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
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
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
    """Samples the memory of the servers, and the processor time of the servers and the clients.

    Args:
        servers: process ids of the servers, by name. Memory counts the api and the worker only.
    """

    def __init__(self, servers: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._parts = {name: [psutil.Process(pid)] for name, pid in servers.items()}
        self._watched = [self._parts[name][0] for name in servers if name != "redis"]
        self._spent: list[tuple[float, dict[str, float]]] = []
        self.idle = self.peak = self._memory()
        self.on = True

    def add_clients(self, clients: list[subprocess.Popen[bytes]]) -> None:
        """Also samples these processes."""
        self._parts["clients"] = [psutil.Process(client.pid) for client in clients]

    def run(self) -> None:
        while self.on:
            try:
                self.peak = max(self.peak, self._memory())
                self._spent.append((time.time(), self._processor()))
            except psutil.Error:  # A process has ended, so the last round is over.
                return
            time.sleep(0.02)  # The interval between two samples.

    def processor(self, stamps: list[float], clients: int) -> dict[str, float]:
        """Milliseconds of processor time per update, by part.

        Args:
            stamps: Unix times of the ends of rounds.
            clients: number of updates in a round.
        """
        updates, times = clients * (len(stamps) - 1), [at for at, _ in self._spent]

        def between(name: str) -> float:
            spent = [parts.get(name, 0.0) for _, parts in self._spent]
            first, last = np.interp([stamps[0], stamps[-1]], times, spent)
            return 1e3 * float(last - first) / updates

        return {name: between(name) for name in self._parts}

    def _memory(self) -> int:
        return sum(int(process.memory_info().rss) for process in self._watched)

    def _processor(self) -> dict[str, float]:
        return {
            name: sum(sum(process.cpu_times()[:2]) for process in processes)
            for name, processes in self._parts.items()
        }


def started(*arguments: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=environment)


@dataclass
class Measured:
    """The figures of several rounds, without the first round.

    Args:
        gaps: seconds of each round.
        memory: the servers' peak memory minus their memory before the first client, in bytes.
        processor: milliseconds of processor time per update, by part.
        steps: median seconds of each step of a round.
    """

    gaps: list[float]
    memory: int
    processor: dict[str, float]
    steps: dict[str, float]

    @staticmethod
    def of(stamps: list[float], watch: Watch, clients: int, steps: dict[str, float]) -> "Measured":
        """The figures, from the Unix times at which rounds ended."""
        gaps = [b - a for a, b in pairwise(stamps)]
        spent = watch.processor(stamps, clients)
        return Measured(gaps, watch.peak - watch.idle, spent, steps)


def measure_floor(kind: str, clients: int, dim: int, rounds: int) -> Measured:
    from rampart_fl.services.console.launcher.processes import free_port

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        out, port = Path(folder) / "stamps.json", free_port()
        server = started(FLOORS, f"{kind}-server", clients, dim, rounds, port, out)
        time.sleep(2.0)
        watch = Watch({"server": server.pid})
        members = [
            started(FLOORS, f"{kind.replace('durable', 'echo')}-client", i, dim, rounds, port)
            for i in range(clients)
        ]
        watch.add_clients(members)
        watch.start()
        try:
            for member in members:
                member.wait(600)
            stamps = json.loads(out.read_text())
        finally:
            watch.on = False
            for process in [*members, server]:
                process.kill()
                process.wait()
    return Measured.of(stamps, watch, clients, {})


def measure_rampart(
    clients: int, dim: int, rounds: int, fedcap: bool = False, split: bool = False
) -> Measured:
    sys.path.insert(0, str(HERE.parents[1]))
    from benchmarks.crowd import CrowdFederation
    from rampart_fl.services.console.launcher.local_federation import LocalFederation
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.runtime import cpus

    experiment = Experiment.from_tables(experiment_of(dim, clients, rounds, fedcap))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        threads = {"RAMPART_THREADS": str(cpus.threads())}
        kind, servers = (
            (CrowdFederation, ("api", "worker")) if split else (LocalFederation, ("aggregator",))
        )
        with kind(experiment, Path(folder), settings=threads) as federation:
            tokens = federation.operator.mint(experiment.client_names).tokens
            time.sleep(2.0)
            parts = (*servers, "redis")
            watch = Watch({name: federation.processes[name].pid for name in parts})
            members = [
                started(HERE, "--client", federation.url, token, f"{folder}/c{i}", dim, i)
                for i, token in enumerate(tokens)
            ]
            watch.add_clients(members)
            watch.start()
            try:
                while federation.run.status().phase != "done":
                    federation.processes.check(*parts)
                    time.sleep(0.5)
            finally:
                watch.on = False
                for member in members:
                    member.kill()
                    member.wait()
            records = federation.run.rounds()
    stamps = [record.closed_at for record in records]
    steps = {
        step: statistics.median(r.timings[step] for r in records[1:]) for step in records[0].timings
    }
    return Measured.of(stamps, watch, clients, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(DEFAULT))
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
            measured = KINDS[kind](given.clients, dim, given.rounds)
            gaps, memory = measured.gaps, measured.memory
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
                    "processor_ms": measured.processor,
                    "steps": measured.steps,
                }
            )
            print(
                f"{dim:9d} {kind:8s} {medians[kind]:8.4f} s/round (best {min(gaps):.4f}) "
                f"{'' if ratio is None else f'{ratio:5.2f} x durable '} "
                f"server +{memory / 2**20:.0f} MiB ({memory / pool:.2f} x pool) "
                + " ".join(f"{k} {v:.2f} ms" for k, v in measured.processor.items())
                + "".join(f" {k} {v:.3f}" for k, v in measured.steps.items()),
                file=sys.stderr,
                flush=True,
            )
    if given.json:
        print(json.dumps(rows))
        return
    print(
        "| parameters | | s/round | of durable | server memory, MiB | of the pool "
        "| processor time per update, ms |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        of = "-" if row["of_durable"] is None else f"{row['of_durable']:.2f}"
        print(
            f"| {row['parameters']:,} | {row['kind']} | {row['seconds']:.4f} | {of} | "
            f"{row['memory_mib']:.0f} | {row['memory_of_pool']:.2f} | "
            + ", ".join(f"{name} {spent:.2f}" for name, spent in row["processor_ms"].items())
            + " |"
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


KINDS: dict[str, Callable[[int, int, int], Measured]] = {
    "sockets": partial(measure_floor, "sockets"),
    "echo": partial(measure_floor, "echo"),
    "durable": partial(measure_floor, "durable"),
    "rampart": measure_rampart,
    "fedcap": partial(measure_rampart, fedcap=True),
    "split": partial(measure_rampart, split=True),
}
DEFAULT = ("sockets", "echo", "durable", "rampart", "fedcap")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        url, join_token, folder, dim, number = sys.argv[2:]
        # The event loop that agents use.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(rampart_client(url, join_token, Path(folder), int(dim), int(number)))
    else:
        main()
