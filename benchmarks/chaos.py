"""Kills processes of a running federation, and compares the result with an undisturbed run.

    python benchmarks/chaos.py [EXPERIMENT] [--kills 50] [--rounds 20] [--json]

Everything that the aggregator has acknowledged must count exactly once. So records, verdicts,
weights, norms and model digests have to equal those of the undisturbed run bit for bit. Timings are
excluded.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.services.console.launcher.processes import ChildFailed, Processes
from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import RoundRecord

UNLIKE = {"timings", "opened_at", "closed_at"}
"""Fields of a record that depend on the clock."""


@dataclass
class Run:
    """The result of a federation without times, and how the federation was disturbed."""

    records: list[dict[str, Any]]
    evicted: list[str]
    evaluations: dict[str, dict[str, float]]
    seconds: float
    kills: list[str] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    """Seconds from each kill of the aggregator until it was ready again."""

    def outcome(self) -> dict[str, Any]:
        """The results that have to be the same in every run."""
        return {
            "records": self.records,
            "evicted": self.evicted,
            "evaluations": self.evaluations,
        }


Disturb = Callable[[LocalFederation, "Run"], None]
"""A function that `run` calls repeatedly during a run, and that kills a process or waits."""


def run(
    experiment: Experiment,
    folder: Path,
    disturb: Disturb | None = None,
    processes: type[Processes] = ForkedProcesses,
) -> Run:
    """Runs a federation to its end, disturbed or not."""
    started, result = time.monotonic(), Run([], [], {}, 0.0)
    settings = {"RAMPART_THREADS": "1"}
    federation = LocalFederation(experiment, folder, settings=settings, processes=processes)
    with federation:
        federation.start_clients()
        while True:
            status = federation.run.status()
            if status.phase == "done":
                break
            if disturb is None:
                federation.processes.check("redis", "aggregator")
                time.sleep(0.2)
            else:
                disturb(federation, result)
        result.records = [comparable(record) for record in federation.run.rounds()]
        result.evicted = status.evicted
        result.evaluations = federation.run.evaluations()
    result.seconds = time.monotonic() - started
    return result


def comparable(record: RoundRecord) -> dict[str, Any]:
    """A record without the fields that depend on the clock."""
    return record.model_dump(mode="json", exclude=UNLIKE)


def kill_aggregator(federation: LocalFederation, result: Run) -> None:
    """Kills the aggregator with SIGKILL, and restarts it."""
    federation.processes.kill("aggregator")
    result.kills.append("aggregator")
    began = time.monotonic()
    federation.start_aggregator()
    federation.operator.ready()
    result.back.append(time.monotonic() - began)


def kill_redis(federation: LocalFederation, result: Run) -> None:
    """Kills Redis with SIGKILL, and restarts it from its append-only file."""
    federation.processes.kill("redis")
    result.kills.append("redis")
    federation.start_redis()
    federation.operator.ready()


def kill_clients_between_training_and_upload(federation: LocalFederation, result: Run) -> None:
    """Kills a process that hosts clients, after it stores an upload and before it sends it."""
    group = next(name for name in federation.processes.names if name.startswith("clients-"))
    state = federation.folder / "clients" / group
    before = _stamps(state)
    give_up = time.monotonic() + 20
    while _stamps(state) == before and time.monotonic() < give_up:
        time.sleep(0.001)
    federation.processes.kill(group)
    result.kills.append(group)
    role, slots = federation.clients.groups()[group]
    federation.clients.restart_group(group, role, slots)


def _stamps(state: Path) -> list[int]:
    return sorted(path.stat().st_mtime_ns for path in state.glob("client-*/runs/*/train.kept"))


def randomly(kills: int, longest: float, seed: int) -> Disturb:
    """Kills the aggregator `kills` times after random pauses, then lets the federation finish."""
    draws, left = random.Random(seed), [kills]

    def disturb(federation: LocalFederation, result: Run) -> None:
        time.sleep(draws.uniform(0.0, longest))
        if left[0] > 0:
            left[0] -= 1
            kill_aggregator(federation, result)

    return disturb


def difference(expected: dict[str, Any], actual: dict[str, Any]) -> str | None:
    """The first difference between two outcomes; None if they are equal."""
    for key in expected:
        if key == "records" and len(expected[key]) == len(actual[key]):
            for one, other in zip(expected[key], actual[key], strict=True):
                for name in one:
                    if one[name] != other[name]:
                        return f"round {one['round']}, {name}: {one[name]} != {other[name]}"
        elif expected[key] != actual[key]:
            return f"{key}: {str(expected[key])[:500]} != {str(actual[key])[:500]}"
    return None


def main() -> int:
    """Runs both federations and compares the results; returns 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", nargs="?", default="digits-sign-flip")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--longest", type=float, default=3.0, help="longest pause between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    tables = Experiment.load(given.experiment).tables()
    experiment = Experiment.from_tables({**tables, "rounds": given.rounds})
    with tempfile.TemporaryDirectory() as folder:
        try:
            calm = run(experiment, Path(folder) / "calm", processes=Processes)
            shaken = run(
                experiment,
                Path(folder) / "shaken",
                randomly(given.kills, given.longest, given.seed),
                Processes,
            )
        except (RampartError, ChildFailed) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    deviation = difference(calm.outcome(), shaken.outcome())
    summary = {
        "experiment": experiment.name,
        "rounds": len(shaken.records),
        "kills": len(shaken.kills),
        "identical": deviation is None,
        "difference": deviation,
        "slowest_return_s": round(max(shaken.back, default=0.0), 2),
        "mean_return_s": round(sum(shaken.back) / max(1, len(shaken.back)), 2),
        "seconds_calm": round(calm.seconds, 1),
        "seconds_shaken": round(shaken.seconds, 1),
    }
    if given.json:
        print(json.dumps(summary))
    else:
        print("\n".join(f"{name:18} {value}" for name, value in summary.items()))
    return 0 if deviation is None else 1


if __name__ == "__main__":
    sys.exit(main())
