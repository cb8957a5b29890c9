"""Loud attacks and collusion over HTTP, compared with the same runs in simulation."""

from collections.abc import Iterator, Sequence

from benchmarks.detection import report
from benchmarks.detection.loud import ATTACKS, HOSTILE, eviction
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run

CLIENTS, ROUNDS = 20, 60
HALF = ("sign_flip", "model_replacement", "min_max", "fang")
"""Attacks that are also run with half of the clients in each round."""
FIFTH = ("sign_flip", "gaussian")
"""Attacks that are also run with a fifth of the clients in each round."""
COLLUSION = ("mimic", "sybil_clones")
"""Forms of collusion by just under half of the clients, of which all are in each round."""
CASES = (
    *((attack, 1.0) for attack in ATTACKS),
    *((attack, 0.5) for attack in HALF),
    *((attack, 0.2) for attack in FIFTH),
    *((attack, 1.0) for attack in COLLUSION),
)
SECONDS = 90.0
"""Approximate seconds of a run over HTTP."""


def plan(options: Options) -> list[Run]:
    """Runs of every case over HTTP and in simulation."""
    from rampart_fl.shared.experiment import Experiment

    runs = []
    for attack, fraction in CASES:
        for seed in range(options.seed, options.seed + (options.runs or 1)):
            tables = Experiment.load("digits-benign").tables()
            customizer = tables["server"]["customizer"]
            tables |= {
                "seed": seed,
                "rounds": ROUNDS,
                "fraction": fraction,
                "server": {"detectors": list(options.detectors), "customizer": customizer},
                "attackers": [{"count": _count(attack), "attack": ATTACKS.get(attack, attack)}],
            }
            label = {"attack": attack, "fraction": fraction, "seed": seed}
            runs.append(Run(tables, {**label, "over": "HTTP"}, SECONDS, network=True))
            runs.append(Run(tables, {**label, "over": "simulation"}, 25.0))
    return runs


def _count(attack: str) -> int:
    return (CLIENTS - 1) // 2 if attack in COLLUSION else round(HOSTILE * CLIENTS)


def write(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## Loud attacks over HTTP"
    yield ""
    yield from report.provenance(options.command, [one for _, one in results])
    yield (
        f"Real Redis, aggregator, agents and attackers on one machine; digits, {CLIENTS} clients"
        f" with two classes each, {ROUNDS} rounds of FedCAP; {HOSTILE:.0%} of the clients attack,"
        f" or just under half ({', '.join(COLLUSION)}). Every line is followed by the same"
        " experiment in simulation. Core-hours are those of the simulations. These runs compare"
        " HTTP with simulation. They do not show how many attackers the detectors find: the section"
        " about loud attacks has more rounds, and more and other settings."
    )
    rows = []
    for run, one in results:
        label = run.label
        name = f"{label['attack']}, fraction {label['fraction']:g}, seed {label['seed']}"
        excluded = one["hostile_excluded"] / max(1, one["hostile_rounds"])
        columns = [report.percent(one["fnr"], 0), eviction([one], "round"), f"{excluded:.0%}"]
        columns.append(one["honest_evicted"])
        shares = [*report.excluded_rounds([one])[:2], *report.accuracies([one])]
        rows.append([f"{name}, {label['over']}", *columns, *shares, f"{one['wall_s']:.0f}"])
    names = (f"accuracy {name}" for name in report.ACCURACIES)
    header = ("attack", "FNR", "median eviction", "attackers' updates excluded", "honest evicted")
    header += (*report.SILENCED[:2], *names)
    yield from report.table((*header, "seconds"), rows)
