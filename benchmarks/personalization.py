"""Compares every personalizer with a single global model, on clients with two classes each.

    python benchmarks/personalization.py [--seeds 1] [--only fedrod fedper] [--cache runs.jsonl]

The benchmark needs Fashion-MNIST in RAMPART_DATA_DIR. It runs the shipped experiment
fashion-mnist-two-classes: 20 clients with 150 training and 50 test images each, a small
convolutional network, and 20 rounds of plain averaging. The lines of the table differ only in the
personalizer and in what the personalizer needs on the server. No hyperparameter was tuned.
"""

import argparse
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASE = "fashion-mnist-two-classes"
METHODS: dict[str, dict[str, Any]] = {
    "none": {},
    "local": {},
    "fine_tune": {},
    "ditto": {"personalizer": {"lambda": 0.1}},
    "fedcap": {
        "personalizer": {"lambda": 0.1},
        "server": {"customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1}},
    },
    "fedrod": {},
    "fedper": {},
    "fedbabu": {},
    "apfl": {"personalizer": {"alpha": 0.5}},
    "interpolated": {"personalizer": {"lambda": 0.5}},
    "fedfomo": {"server": {"customizer": {"name": "fedfomo"}}},
}
"""Changes to the experiment for each method: parameters of the personalizer and of the server."""
TITLE = "Personalization on Fashion-MNIST, two classes per client"
MARKS = ("<!-- benchmarks/personalization.py -->", "<!-- end -->")
Found = dict[tuple[str, int], dict[str, float]]


def main() -> None:
    """Runs each method and seed that is not in the cache, and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 1 on")
    parser.add_argument("--only", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--cache", type=Path, help="file of finished runs, which are not repeated")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/personalization.md")
    parser.add_argument("--docs", type=Path, help="page in which the table is also replaced")
    options = parser.parse_args()
    results = cached_runs(options.cache)
    for seed in range(1, options.seeds + 1):
        for name in options.only:
            if (name, seed) not in results:
                results[name, seed] = run(name, seed)
                print(name, seed, results[name, seed], file=sys.stderr, flush=True)
                if options.cache is not None:
                    with options.cache.open("a") as file:
                        file.write(json.dumps([[name, seed], results[name, seed]]) + "\n")
    text = "\n".join(report(results))
    options.out.write_text(f"# {TITLE}\n\n{text}\n")
    if options.docs is not None:
        before, _, rest = options.docs.read_text().partition(MARKS[0])
        options.docs.write_text(
            f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"
        )
    print(text)


def cached_runs(cache: Path | None) -> Found:
    """Finished runs in the cache file, which an earlier call with the same code has written."""
    if cache is None or not cache.exists():
        return {}
    lines = map(json.loads, cache.read_text().splitlines())
    return {(name, seed): figures for (name, seed), figures in lines}


def run(name: str, seed: int) -> dict[str, float]:
    """Accuracies of one method: of the received models, the own models, and the worst client."""
    import torch

    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.figures.client_metrics import latest
    from rampart_fl.shared.simulation import simulate

    torch.set_num_threads(1)
    tables = Experiment.load(BASE).tables()
    tables["seed"] = seed
    tables["personalizer"] = {"name": name, **METHODS[name].get("personalizer", {})}
    tables["server"] |= METHODS[name].get("server", {})
    result = simulate(Experiment.from_tables(tables))
    clients = latest(record.metrics for record in result.records).values()
    kind = "customized" if name == "none" else "personalized"
    return {
        "received": result.figures["accuracy_customized"],
        "own": result.figures[f"accuracy_{kind}"],
        "worst": min(one[f"correct_{kind}"] / one["test_samples"] for one in clients),
    }


def report(results: Found) -> Iterator[str]:
    """The table as Markdown."""
    import torch

    seeds = sorted({seed for _, seed in results})
    yield f"`python benchmarks/personalization.py --seeds {len(seeds)}`; {platform.machine()},"
    yield f"torch {torch.__version__}; experiment {BASE}, seed {', '.join(map(str, seeds))}."
    yield "After the last round, every client tests its own model and the model that it received."
    yield "Accuracy is the share of correctly classified images. It is computed over the test"
    yield "images of all clients together. The table shows the mean ± the standard deviation over"
    yield "seeds. Worst client: the lowest accuracy of any client's own model with any seed."
    yield "Gain: the accuracy of the clients' own models minus the accuracy of the single global"
    yield "model with the same seed, in percentage points. The table shows the mean and the lowest"
    yield "gain over the seeds."
    yield ""
    yield "| personalizer | own model | worst client | model received | gain | lowest |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in METHODS:
        cells = {seed: results[name, seed] for seed in seeds if (name, seed) in results}
        if not cells:
            continue
        rivals = [(one, results["none", seed]) for seed, one in cells.items()]
        gains = [one["own"] - single["own"] for one, single in rivals]
        shown = "- | -" if name == "none" else f"{100 * mean(gains):+.1f} | {100 * min(gains):+.1f}"
        yield (
            f"| {name} | {mean_and_deviation(one['own'] for one in cells.values())} "
            f"| {min(one['worst'] for one in cells.values()):.1%} "
            f"| {mean_and_deviation(one['received'] for one in cells.values())} "
            f"| {shown}{' MISSED' if name != 'none' and min(gains) <= 0 else ''} |"
        )
    own = {name: mean(results[name, s]["own"] for s in seeds) for name, _ in results}
    yield ""
    yield from verdict(own)


def mean_and_deviation(accuracies: Iterable[float]) -> str:
    """The mean in percent and, for more than one value, the standard deviation."""
    percentages = [100 * one for one in accuracies]
    return (
        f"{mean(percentages):.1f}"
        + (f" ± {stdev(percentages):.1f}" if len(percentages) > 1 else "")
        + "%"
    )


def verdict(own: Mapping[str, float]) -> Iterator[str]:
    """The result in words: which methods beat the global model, and which beat local training.

    Args:
        own: mean accuracy of the clients' own models, keyed by method.
    """
    methods = [name for name in METHODS if name in own and name not in ("none", "local")]
    missed = [name for name in methods if own[name] <= own["none"]]
    yield (
        f"Methods less accurate than the single global model: {', '.join(missed) or 'none'}. Each"
        " client has two classes, and tells them apart well even if it trains alone."
    )
    above = [name for name in methods if own[name] > own["local"]]
    yield f"More accurate than training alone (`local`): {', '.join(above) or 'none'}."


if __name__ == "__main__":
    main()
