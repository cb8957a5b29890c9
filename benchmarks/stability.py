"""Measures the effect of MSDFL and HMSDFL on accuracy and Jacobian, with and without attack LIE.

    RAMPART_DATA_DIR=... python benchmarks/stability.py [--experiment mnist-hmsdfl] [--rounds N]

Runs the experiment once for each of the cases below, with the experiment's seed. Prints the
accuracy of the global model and the mean over honest clients of |∂z/∂w|_F² after the last round's
training. All cases include HMSDFL with a weight of 0, which measures this norm but does not affect
training.
"""

import argparse
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.sweep import Sweep
from rampart_fl.shared.simulation import simulate

SUMMED = {"name": "msdfl", "form": "batch_sum"}
CASES: list[tuple[str, float | None, dict[str, Any]]] = [
    ("trimmed_mean", None, {}),
    ("trimmed_mean", 1.5, {}),
    ("trimmed_mean", 1.5, {"name": "hmsdfl", "lambda": 1e-5}),
    ("trimmed_mean", 1.5, {"name": "hmsdfl", "lambda": 1e-4}),
    ("trimmed_mean", 1.5, {"name": "hmsdfl", "lambda": 1e-3}),
    ("trimmed_mean", 1.5, {**SUMMED, "lambda": 1e-3}),
    ("trimmed_mean", 1.5, {**SUMMED, "lambda": 1e-2}),
    ("weighted_mean", 5.0, {}),
    ("weighted_mean", 5.0, {"name": "hmsdfl", "lambda": 1e-4}),
]
"""For each case: the rule, LIE's z (None without an attack), and the objective's term."""


def variant(
    tables: Mapping[str, Any], rule: str, z: float | None, term: dict[str, Any], rounds: int | None
) -> Experiment:
    """The experiment with another rule, attack and objective, and with the norm measured."""
    # Without z, the attackers attack in no round. The honest clients, which are measured, are the
    # same in every case.
    attack = {"name": "lie", "z": z or 0.0, "until_round": 0 if z is None else None}
    terms = [{"name": "hmsdfl", "lambda": 0.0}, *([term] if term else [])]
    return Experiment.from_tables(
        {
            **tables,
            "rounds": rounds or tables["rounds"],
            "training": {**tables["training"], "objective": terms},
            "server": {**tables["server"], "rule": rule},
            "attackers": [{**tables["attackers"][0], "attack": attack}],
        }
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", default="mnist-hmsdfl")
    parser.add_argument("--rounds", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sweep = Sweep.load(given.experiment)
    base = Experiment.load(given.experiment) if sweep is None else sweep.base
    tables = base.tables()
    print("| rule | LIE's z | term | accuracy | mean of the Jacobian's squared norm |", flush=True)
    print("|---|--:|---|--:|--:|")
    for rule, z, term in CASES:
        result = simulate(variant(tables, rule, z, term, given.rounds))
        last, roles = result.records[-1].metrics, result.experiment.roles
        honest = [
            last[name]["jacobian_norm"]
            for name, role in zip(result.experiment.client_names, roles, strict=True)
            if role is None
        ]
        shown = "-" if z is None else f"{z:g}"
        term_text = f"`{term['name']}`, λ = {term['lambda']:g}" if term else "plain"
        accuracy = result.figures["accuracy_customized"]
        print(
            f"| {rule} | {shown} | {term_text} | {accuracy:.2%} | {fmean(honest):,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
