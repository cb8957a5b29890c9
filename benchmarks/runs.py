"""Measures the growth of memory and disk over many runs, each of which is deleted at its end.

    python -m benchmarks.runs [--runs 200] [--rounds 3] [--clients 10] [--json FILE]

Processes, clients and intervals are those of `benchmarks.soak`. After each run, the benchmark
deletes the run's keys and blobs. Memory and disk should then be the same as before the run, except
for the audit log, which keeps an entry for each submission and each deletion. Redis also keeps the
check of a submission for five minutes, so its memory grows until the checks of the first runs
expire.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import redis

from benchmarks.soak import EXPERIMENT, TwoProcesses, blobs_of, play, processes_of, table
from rampart_fl.services.console.connection.operated_run import OperatedRun
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.runs import OVER

PREFIX = "{rampart}:"
"""Prefix of the federation's keys in Redis."""
MEASURES = {
    "api": "api, resident",
    "worker": "worker, resident",
    "redis": "Redis, used",
    "keys": "Redis, number of keys that do not expire",
    "held": "Redis, these keys without the audit log",
    "audit": "Redis, the audit log",
    "blobs": "blobs, bytes",
    "files": "blobs, files",
}
POLL = 0.02
"""Seconds between two polls of a run."""


def sample(federation: TwoProcesses, client: "redis.Redis[str]") -> dict[str, float]:
    """The bytes that api, worker, Redis and blobs hold between two runs, and numbers of keys."""
    sizes = blobs_of(federation)
    lasting = [key for key in client.scan_iter() if client.ttl(key) == -1]
    held = {key: client.memory_usage(key, samples=0) or 0 for key in lasting}
    audit = sum(size for key, size in held.items() if key.startswith(f"{PREFIX}audit"))
    return {
        **processes_of(federation, client),
        "keys": len(held),
        "held": sum(held.values()) - audit,
        "audit": audit,
        "blobs": sum(sizes),
        "files": len(sizes),
    }


def finish(run: OperatedRun, federation: TwoProcesses, client: "redis.Redis[str]") -> None:
    """Waits for the end of the run, and deletes it with its keys and blobs."""
    while run.info().state not in OVER:
        federation.processes.check("aggregator", "api", "redis")
        # The samples measure memory, not time, so polling does not distort them.
        time.sleep(POLL)
    info = run.info()
    assert info.state == "finished", info
    run.delete()
    folder = federation.folder / "blobs/rampart" / info.run
    while folder.exists() or client.keys(f"{PREFIX}run:{info.run}:*"):
        # No event reports that the worker has removed the last blob, so poll.
        time.sleep(POLL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
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
        operator = federation.operator
        tokens = operator.mint(experiment.client_names).tokens
        play_runs = play(federation.url, tokens, Path(name) / "clients", given.runs)
        run = federation.run  # It was submitted when the federation was founded.
        threading.Thread(target=asyncio.run, args=(play_runs,), daemon=True).start()
        while len(samples) < given.runs and time.monotonic() - started < 60 * given.minutes:
            if samples:
                run = operator.run(operator.submit(experiment).run)
            finish(run, federation, client)
            samples.append({"run": len(samples) + 1, **sample(federation, client)})
            if given.json is not None:
                given.json.write_text(json.dumps(samples))
    sys.stdout.write(
        f"{len(samples)} runs of {given.rounds} rounds and {given.clients} clients in "
        f"{time.monotonic() - started:,.0f} s\n\n{table(samples, MEASURES, 'run')}\n"
    )


if __name__ == "__main__":
    main()
