"""Processor time and memory of the api, the worker and Redis for many clients with small models.

    python -m benchmarks.crowd [--clients 1000] [--fraction 1] [--rounds 5] [--json] [--out FILE]
    python -m benchmarks.crowd --clients 10000 --fraction 0.1      a round selects a tenth of them

The api, the worker and Redis are processes as in a deployment. One more process hosts all clients
(crowd_clients.py), which follow the protocol as agents do but do not train. Figures of rounds are
medians without round 0. Processor time is the user and system time of all threads of a process,
divided by the number of updates in the round. Unlike wall-clock time, processor time hardly depends
on other load on the machine.

Before the run begins, all clients but one have joined and wait. In this state, the benchmark
measures the api's memory per waiting client. It also measures how much processor time the api
spends on an event, divided by the number of waiting clients.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import psutil
import redis

from benchmarks.crowd_clients import WAIT
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.services.console.launcher.processes import free_port, wait_until_listening
from rampart_fl.services.console.launcher.servers import START
from rampart_fl.shared.experiment import Experiment

PARTS = ("api", "worker", "redis")
HIDDEN = 133
"""Hidden units of the perceptron, which then has 9,985 parameters."""
EVENTS = 10
"""Number of events that are sent while all clients wait."""
MINTED = 10_000
"""Maximum number of join tokens that one request creates."""
SETTLED = 0.05
"""The api counts as idle if it uses at most this share of a processor."""


class CrowdFederation(LocalFederation):
    """A federation whose api and worker are separate processes."""

    modules: ClassVar[dict[str, str]] = {}
    """The Python module of each role that does not run the aggregator's own module."""

    def start_aggregator(self) -> None:
        """Starts the api and the worker."""
        common = {
            "RAMPART_OPERATOR_TOKEN": self.token,
            "RAMPART_REDIS_URL": f"redis://127.0.0.1:{self.redis_port}/0",
            "RAMPART_REDIS_PASSWORD": self.redis_password,
            "RAMPART_BLOBS": str(self.folder / "blobs"),
            "RAMPART_JOINS_PER_MINUTE": "1000000",
            "MALLOC_ARENA_MAX": "2",
            "RAMPART_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            **self.variables(),
        }
        ports = {"api": self.port, "worker": free_port()}
        for role, port in ports.items():
            own = {"RAMPART_ROLE": role, "RAMPART_PORT": str(port), "RAMPART_WORKER_ID": role}
            if role == "api":
                own["RAMPART_EXPERIMENT"] = ""
            environment = {name: text for name, text in {**common, **own}.items() if text}
            module = self.modules.get(role, "rampart_fl.services.aggregator")
            self.processes.python(role, module, **environment)
        for role, port in ports.items():
            wait_until_listening(port, self.processes, role, START)


def experiment(clients: int, fraction: float, rounds: int) -> Experiment:
    """An experiment in which every round waits for all of its selected clients."""
    return Experiment.from_tables(
        {
            "name": "crowd",
            "rounds": rounds,
            "fraction": fraction,
            "data": {"dataset": {"name": "digits"}, "clients": clients},
            "model": {"name": "mlp", "hidden": [HIDDEN]},
            "server": {"rule": [{"name": "weighted_mean"}]},
        }
    )


class Meter:
    """Processor seconds and memory of a federation's processes."""

    def __init__(self, federation: LocalFederation) -> None:
        self._processes = {n: psutil.Process(federation.processes[n].pid) for n in PARTS}

    def processor(self) -> dict[str, float]:
        """Processor seconds of each process since its start."""
        times = {name: process.cpu_times() for name, process in self._processes.items()}
        return {name: spent.user + spent.system for name, spent in times.items()}

    def settle(self) -> None:
        """Waits until the api is idle, for at most the duration of a long poll."""
        before = self.processor()["api"]
        for _ in range(WAIT // 2):
            time.sleep(2.0)  # The processor time of this span is the measurement.
            after = self.processor()["api"]
            if after - before < 2.0 * SETTLED:
                return
            before = after

    def memory(self, name: str) -> int:
        """Resident bytes of a process."""
        return int(self._processes[name].memory_info().rss)


def event_cost(federation: LocalFederation, meter: Meter, run: str, waiting: int) -> float:
    """Microseconds of the api's processor time for each event and each client that waits.

    Meanwhile, the api also answers polls that end. Two periods with the length of a poll contain
    the same number of such polls, so the difference between them is the cost of the events.
    """
    stream = f"{{rampart}}:run:{run}:events"
    before = meter.processor()["api"]
    time.sleep(WAIT)  # The period without events, whose processor time is subtracted.
    quiet = meter.processor()["api"] - before
    with redis.Redis(port=federation.redis_port, password=federation.redis_password) as server:
        for _ in range(EVENTS):
            # The event says that a round has opened, but it concerns no client.
            server.xadd(stream, {"type": "opened", "round": "0", "phase": "collecting"})
            time.sleep(WAIT / EVENTS)  # Both periods have the same length.
    spent = meter.processor()["api"] - before - quiet
    return 1e6 * (spent - quiet) / EVENTS / waiting


def measure(
    clients: int, fraction: float, rounds: int, folder: Path, events: bool = True
) -> dict[str, Any]:
    """All figures of one run; if `events` is false, the cost of an event is not measured."""
    planned = experiment(clients, fraction, rounds + 2)
    with CrowdFederation(planned, folder) as federation:
        meter, run = Meter(federation), federation.run
        tokens = [
            token
            for start in range(0, clients, MINTED)
            for token in federation.operator.mint_unbound(min(MINTED, clients - start)).tokens
        ]
        idle, unjoined = meter.memory("api"), meter.processor()
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.crowd_clients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as load:
            assert load.stdin is not None
            assert load.stdout is not None
            given = {"port": federation.port, "hidden": HIDDEN, "run": run.id, "tokens": tokens}
            load.stdin.write(json.dumps({**given, "joining": 256}) + "\n")
            load.stdin.flush()
            try:
                joined = json.loads(load.stdout.readline())
                after = meter.processor()
                joining = {part: after[part] - unjoined[part] for part in PARTS}
                print(joined, joining, file=sys.stderr, flush=True)
                meter.settle()
                waiting = meter.memory("api")
                event = event_cost(federation, meter, run.id, clients - 1) if events else None
                load.stdin.write("go\n")
                load.stdin.flush()
                marks, statuses = [], dict[str, int]()
                for line in load.stdout:
                    report = json.loads(line)
                    print(line, end="", file=sys.stderr, flush=True)
                    memory = meter.memory("api")
                    marks.append({"at": report["at"], "memory": memory, **meter.processor()})
                    statuses = report["statuses"]
            finally:
                load.kill()
        records = run.rounds()
    updates = len(records[0].participants)
    # The last mark is the run's end, after the evaluation.
    pairs = list(pairwise(marks[1:-1]))
    return {
        "clients": clients,
        "drawn": updates,
        "rounds": len(pairs),
        "seconds_per_round": statistics.median(b["at"] - a["at"] for a, b in pairs),
        "updates_per_second": updates / statistics.median(b["at"] - a["at"] for a, b in pairs),
        "milliseconds_per_update": {
            part: statistics.median(1e3 * (b[part] - a[part]) / updates for a, b in pairs)
            for part in PARTS
        },
        "refused_429": int(statuses.get("429", 0)),
        "unavailable_503": int(statuses.get("503", 0)),
        "join_seconds": joined["seconds"],
        "processor_seconds_joining": joining,
        "kib_per_waiting_client": (waiting - idle) / 1024 / (clients - 1),
        "kib_per_client_in_last_round": (marks[-2]["memory"] - idle) / 1024 / clients,
        **({} if event is None else {"event_microseconds_per_client": event}),
    }


def main() -> None:
    """Measures a crowd, and prints its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--fraction", type=float, default=1.0, help="share selected for a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the first one")
    parser.add_argument("--no-events", action="store_true", help="leave out the cost of an event")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", type=Path, help="file to append the figures to, as a line of JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        events = not given.no_events
        result = measure(given.clients, given.fraction, given.rounds, Path(folder), events)
    if given.out is not None:
        with given.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
    if given.json:
        print(json.dumps(result))
        return
    print("| figure | |\n|---|---:|")
    for name, value in result.items():
        parts = value if isinstance(value, dict) else {"": value}
        for label, number in {f"{name} {part}".strip(): v for part, v in parts.items()}.items():
            print(f"| {label.replace('_', ' ')} | {number:,.2f} |")


if __name__ == "__main__":
    main()
