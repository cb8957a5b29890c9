"""The runs with false sample counts cover all methods and are compared within a method."""

from typing import Any

from benchmarks.detection.claims import ATTACKS, CLAIMS, METHODS, plan, write
from benchmarks.detection.options import Options
from rampart_fl.shared.experiment import Experiment

OPTIONS = Options(({"name": "response"},), 1, 2, (), (), 0, 0, "command")


def test_every_claim_is_run_with_every_method_and_attack() -> None:
    runs = plan(OPTIONS)
    labels = {tuple(run.label[name] for name in ("method", "attack", "claim")) for run in runs}
    assert len(labels) == len(METHODS) * len(ATTACKS) * len(CLAIMS)
    assert len({run.key for run in runs}) == len(runs) == 2 * len(labels)
    for run in runs:
        experiment = Experiment.from_tables(run.tables)
        mixes = experiment.server.customizer["name"] == "fedcap"
        assert mixes == (run.label["method"] == "fedcap")
        stages = [stage["name"] for stage in experiment.server.rule]
        assert ("weight_limit" in stages) == (run.label["method"] == "limited")


def test_false_claim_is_compared_with_the_true_claim_of_the_same_method() -> None:
    runs = [run for run in plan(OPTIONS) if run.label["attack"] == "ipm"]
    base = {"fedcap": 0.5, "global": 0.7, "limited": 0.6}
    results = [(run, _figures(base[run.label["method"]], run.claim)) for run in runs]
    lines = [line for line in write(OPTIONS, results) if line.startswith("| ")]
    rounds = "-1.00 (-1.00 to -1.00) | +1.00 (+1.00 to +1.00) | +1.00 (+1.00 to +1.00)"
    assert f"| fedcap, ipm, 1 | {rounds} | +1.00 (+1.00 to +1.00) |" in lines
    assert f"| global, ipm, 1 | {rounds} | - |" in lines
    assert f"| limited, ipm, 1 | {rounds} | - |" in lines


def _figures(accuracy: float, claim: int | None) -> dict[str, Any]:
    """A claim of one sample hastens the eviction and raises the accuracies by one point."""
    helps = 0.01 if claim == 1 else 0.0
    return {
        "commit": "abc",
        "core_s": 1.0,
        "fnr": 0.0,
        "hostile": 1,
        "honest": 1,
        "honest_evicted": 0,
        "evictions": [{"client": "x", "hostile": True, "round": 5 - (claim == 1), "own": 5}],
        "client_rounds": 10,
        "silenced": 0,
        "worst_silenced": 0.0,
        "received": accuracy + helps,
        "local": accuracy + helps,
        "personal": accuracy + helps if accuracy == 0.5 else None,
    }
