"""Measures the growth of memory and disk over many rounds, with a real api, worker and Redis.

    python -m benchmarks.soak [--rounds 10000] [--clients 10] [--every 50] [--json FILE]

Api and worker are separate processes. The clients run in this process and do not train, so nearly
all of the time is the aggregator's. The model has 85 parameters and is customized by FedCAP, so
every record has mixing weights.

Slopes are least-squares fits to the samples after the first quarter, in which caches fill. The 95 %
intervals of the slopes come from a bootstrap that resamples blocks of residuals, because successive
samples depend on each other.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import redis
from numpy.typing import NDArray

from benchmarks.idle_clients import perceptron, take_part
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.services.console.launcher.processes import free_port, wait_until_listening
from rampart_fl.services.console.launcher.servers import START
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.rounding import ceil_div

EXPERIMENT = """
name = "soak"
rounds = {rounds}
[data]
dataset = "digits"
clients = {clients}
[model]
name = "mlp"
hidden = [1]
[server]
customizer = {{ name = "fedcap" }}
"""
SPEC = perceptron(hidden=1)
REPORT = '{"samples": 100, "metrics": {"test_samples": 20, "correct_local": 19}}'
RUN = "{rampart}:run:soak-1:"
"""Prefix of the run's keys in Redis."""
MEASURES = {
    "api": "api, resident",
    "worker": "worker, resident",
    "redis": "Redis, used",
    "records": "Redis, keys of records",
    "blobs": "blobs, bytes",
    "files": "blobs, files",
    "segments": "blobs, segments of uploads",
}
RECORDS = ("history", "segments")
COUNTS = {"files", "segments", "keys"}
"""Measures that are numbers, not bytes."""


class TwoProcesses(LocalFederation):
    """A federation whose api and worker are separate processes."""

    def start_aggregator(self) -> None:
        """Starts the worker under the name `aggregator`, and the api on the federation's port."""
        public, worker = self.port, free_port()
        common = dict(self.settings)
        self.settings = {**common, "RAMPART_ROLE": "worker"}
        self.port = worker
        super().start_aggregator()
        self.port, self.settings = public, common
        self.processes.python(
            "api",
            "rampart_fl.services.aggregator",
            RAMPART_ROLE="api",
            RAMPART_OPERATOR_TOKEN=self.token,
            RAMPART_REDIS_URL=f"redis://127.0.0.1:{self.redis_port}/0",
            RAMPART_REDIS_PASSWORD=self.redis_password,
            RAMPART_BLOBS=str(self.folder / "blobs"),
            RAMPART_PORT=str(self.port),
            MALLOC_ARENA_MAX="2",
            **common,
        )
        wait_until_listening(self.port, self.processes, "api", START)


async def play(url: str, tokens: Sequence[str], folder: Path, runs: int = 1) -> None:
    """Takes part as every client until the last run ends."""
    await asyncio.gather(
        *(
            take_part(url, token, folder / str(number), SPEC, number, REPORT, runs)
            for number, token in enumerate(tokens)
        )
    )


def blobs_of(federation: TwoProcesses) -> list[int]:
    """The sizes of all blobs in bytes."""
    sizes = list[int]()
    for path in (federation.folder / "blobs").glob("*/*/??/*"):
        with contextlib.suppress(FileNotFoundError):  # The worker may delete a blob meanwhile.
            sizes.append(path.stat().st_size)
    return sizes


def processes_of(federation: TwoProcesses, client: "redis.Redis[str]") -> dict[str, float]:
    """The bytes of memory that api, worker and Redis hold now."""

    def resident(name: str) -> int:
        return psutil.Process(federation.processes[name].pid).memory_info().rss

    return {
        "at": time.time(),
        "api": resident("api"),
        "worker": resident("aggregator"),
        "redis": client.info("memory")["used_memory"],
    }


def sample(federation: TwoProcesses, client: "redis.Redis[str]") -> dict[str, float]:
    """The bytes that api, worker, Redis and blobs hold now, and numbers of blobs and segments."""
    sizes = blobs_of(federation)
    segments = len(list((federation.folder / "blobs").glob("*/*/segments/*")))
    usage = [client.memory_usage(RUN + name, samples=0) or 0 for name in RECORDS]
    blobs = {"blobs": sum(sizes), "files": len(sizes), "segments": segments}
    records = {"records": sum(usage), **blobs}
    return {**processes_of(federation, client), **records}


def slope(rounds_T: NDArray[Any], values_T: NDArray[Any]) -> tuple[float, float, float]:
    """The slope per round, and the bounds of its 95 % interval."""
    design = np.stack([rounds_T, np.ones_like(rounds_T)], axis=1)
    fit = np.linalg.lstsq(design, values_T, rcond=None)[0]
    expected_T = design @ fit
    residuals_T, count = values_T - expected_T, len(values_T)
    length = max(2, round(count**0.5))
    draws, slopes = np.random.default_rng(0), []
    for _ in range(2000):
        starts = draws.integers(0, count - length + 1, size=ceil_div(count, length))
        at = (starts[:, None] + np.arange(length)).ravel()[:count]
        slopes.append(np.linalg.lstsq(design, expected_T + residuals_T[at], rcond=None)[0][0])
    low, high = np.percentile(slopes, [2.5, 97.5])
    return float(fit[0]), float(low), float(high)


def table(
    samples: Sequence[dict[str, float]],
    measures: Mapping[str, str] = MEASURES,
    per: str = "round",
) -> str:
    """First and last figures in MiB, and slopes in bytes, after the first quarter.

    Args:
        samples: the samples, each with its round or run under the key `per`.
        measures: the titles of the samples' columns, by column; columns in `COUNTS` are no bytes.
        per: the unit by which samples are numbered, such as `round`.
    """
    warm = [one for one in samples if one[per] >= samples[-1][per] / 4]
    numbers_T = np.array([one[per] for one in warm], dtype=float)
    lines = [f"| | first | last | slope per {per} | 95 % interval |", "|---|---|---|---|---|"]
    for name, label in measures.items():
        unit, word = (1, "") if name in COUNTS else (2**20, " MiB")
        ends = [f"{warm[at][name] / unit:,.1f}{word}" for at in (0, -1)]
        if len(warm) < 10:
            cells = ["-", "-"]
        else:
            growth = slope(numbers_T, np.array([one[name] for one in warm]))
            word = "" if name in COUNTS else " B"
            cells = [f"{growth[0]:,.1f}{word}", f"{growth[1]:,.1f} to {growth[2]:,.1f}{word}"]
        lines.append(f"| {label} | {ends[0]} | {ends[1]} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--every", type=int, default=50, help="rounds between two samples")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this many minutes")
    parser.add_argument("--json", type=Path, help="file for all samples")
    given = parser.parse_args()
    experiment = Experiment.parse(EXPERIMENT.format(rounds=given.rounds, clients=given.clients))
    samples: list[dict[str, float]] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name, TwoProcesses(experiment, Path(name)) as federation:
        client = redis.Redis(
            port=federation.redis_port, password=federation.redis_password, decode_responses=True
        )
        tokens = federation.operator.mint(experiment.client_names).tokens
        run = play(federation.url, tokens, Path(name) / "clients")
        clients = threading.Thread(target=asyncio.run, args=(run,), daemon=True)
        clients.start()
        due = 0
        while True:
            federation.processes.check("aggregator", "api", "redis")
            phase, number = client.hmget(RUN + "state", "phase", "round")
            over = phase == "done" or time.monotonic() - started > 60 * given.minutes
            if int(number or 0) >= due or over:
                samples.append({"round": int(number or 0), **sample(federation, client)})
                due = int(number or 0) + given.every
                if given.json is not None:
                    given.json.write_text(json.dumps(samples))
            if over:
                break
            time.sleep(0.05)  # Poll the rounds, because a sample is due every `--every` rounds.
        if phase == "done":
            clients.join(60)
    seconds = samples[-1]["at"] - samples[0]["at"]
    sys.stdout.write(
        f"{given.clients} clients, {samples[-1]['round'] + 1:,.0f} rounds in {seconds:,.0f} s\n\n"
        f"{table(samples)}\n"
    )


if __name__ == "__main__":
    main()
