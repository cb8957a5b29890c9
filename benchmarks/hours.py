"""Estimates the hours of every table of `rampart reproduce`, and writes them for its --list.

    python -m benchmarks.hours [--cells 4] [--only TABLE] [--scales reduced full]
    python -m benchmarks.hours --only fedcap-table-3 --scales full --where data=cifar10 attack=lie

The estimate of a table at a scale is cells x seeds x rounds x seconds of a round, on one core. The
seconds are the mean over `--cells` cells, drawn at random with a fixed seed. The benchmark times
the last of each cell's first two rounds. At the scale `full`, it times a round with few local steps
per client, and multiplies the training time by the ratio of the numbers of steps. Times are CPU
times, which hardly depend on other processes. Cells whose data are missing are not timed, and a
table without a timed cell has no hours. `--where` estimates only the cells with these choices, and
writes nothing.
"""

import argparse
import random
import sys
import time
import tomllib
from math import ceil
from statistics import fmean

import tomli_w

from rampart_fl.services.console.studies.reproduction.cells import TableCell, cells
from rampart_fl.services.console.studies.reproduction.files import HOURS, load, names
from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import partition_data
from rampart_fl.shared.runtime.threads import use
from rampart_fl.shared.simulation import Simulation

HEAD = "# Hours of a table with three seeds on one core: python -m benchmarks.hours\n"
SEEDS = 3
SCALES = ("reduced", "full")
BATCHES = 2
"""Approximate number of batches of a client in a timed round at the scale `full`."""
SEARCH = 10
"""Number of iterations of FedREDefense in a timed round."""
known: dict[str, float | None] = {}
"""Seconds of a round of each timed experiment, keyed by the experiment's digest."""


def shortened(experiment: Experiment) -> Experiment:
    """The experiment with few local steps."""
    data, training = experiment.data, experiment.training
    update: dict[str, object] = {}
    if data.samples is not None or data.partition["name"] != "by_group":
        few = ceil(BATCHES * training.batch_size / (1 - data.test_fraction)) + 2
        kept = min(max(few, 12), data.samples or few)
        update["data"] = data.model_copy(update={"samples": kept})
    update["training"] = training.model_copy(update={"epochs": 1})
    return experiment.model_copy(update=update)


def steps(experiment: Experiment) -> int:
    """Number of local steps of all clients together in a round in which all clients take part."""
    data, training = experiment.data, experiment.training
    _, parts = partition_data(data, experiment.seed)
    sizes = [max(len(part) * (1 - data.test_fraction), 1) for part in parts]
    return sum(training.epochs * ceil(size / training.batch_size) for size in sizes)


def seconds(experiment: Experiment, scale: str) -> float | None:
    """Seconds of a round; None if the experiment's data are missing."""
    digest = experiment.digest()
    if digest not in known:
        brief = experiment.model_copy(update={"rounds": min(2, experiment.rounds)})
        short = shortened(brief) if scale == "full" else brief
        try:
            simulation = Simulation.of(_briefly(short), "cpu")
            while not simulation.ended:
                began, computed = time.perf_counter(), time.process_time()
                record = simulation.step()
                busy = (time.process_time() - computed) / (time.perf_counter() - began)
            timings = {step: busy * wall for step, wall in record.timings.items()}
            ratio = steps(experiment) / steps(short)
        except RampartError as error:
            print(f"  {error}", file=sys.stderr, flush=True)
            known[digest] = None
            return None
        exact = experiment.personalizer.get("mode") == "exact"
        trained = sum(timings.pop(step, 0.0) for step in ("train", "probe"))
        screened = timings.pop("screen", 0.0) * _iterations(experiment) / SEARCH
        known[digest] = trained * (1 if exact else ratio) + screened + sum(timings.values())
    return known[digest]


def _iterations(experiment: Experiment) -> float:
    """Iterations of FedREDefense's search; `SEARCH` without FedREDefense, for a ratio of 1."""
    detectors = [d for d in experiment.server.detectors if d["name"] == "fedredefense"]
    return float(detectors[0].get("iterations", 500)) if detectors else SEARCH


def _briefly(experiment: Experiment) -> Experiment:
    """The experiment with few iterations of FedREDefense."""
    brief = {"iterations": SEARCH, "warm_iterations": SEARCH}
    listed = [
        {**d, **brief} if d["name"] == "fedredefense" else d for d in experiment.server.detectors
    ]
    server = experiment.server.model_copy(update={"detectors": listed})
    return experiment.model_copy(update={"server": server})


def hours(grid: list[TableCell], timed: int, scale: str) -> float | None:
    """Estimated hours of all cells that can be run, after timing at most `timed` cells."""
    possible = list({cell.runs[0].digest(): cell for cell in grid if cell.runs}.values())
    drawn = random.Random(0).sample(possible, min(timed, len(possible)))
    timings = [(cell.runs[0], seconds(cell.runs[0], scale)) for cell in drawn]
    each = [one * experiment.rounds for experiment, one in timings if one is not None]
    return fmean(each) * len(possible) * SEEDS / 3600 if each else None


def main() -> None:
    """Times cells of all tables, and writes the hours after each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=4)
    parser.add_argument("--only", nargs="+", default=names(), choices=names(), metavar="TABLE")
    parser.add_argument("--scales", nargs="+", default=SCALES, choices=SCALES)
    parser.add_argument("--where", nargs="+", default=[], metavar="AXIS=CHOICE")
    given = parser.parse_args()
    picked: dict[str, list[str]] = {}
    for axis, _, choice in (text.partition("=") for text in given.where):
        picked.setdefault(axis, []).append(choice)
    known_hours = tomllib.loads(HOURS.read_text()) if HOURS.exists() else {}
    with use(1):
        for name in given.only:
            table = load(name)
            each = {
                scale: hours(cells(table, scale, 1, picked), given.cells, scale)
                for scale in given.scales
            }
            estimates = {scale: float(f"{hours:.2g}") for scale, hours in each.items() if hours}
            print(name, estimates, flush=True)
            if not picked:
                known_hours.setdefault(name, {}).update(estimates)
                HOURS.write_text(HEAD + tomli_w.dumps(dict(sorted(known_hours.items()))))


if __name__ == "__main__":
    main()
