"""Paired runs without attackers are compared over all of them, and by fraction."""

from dataclasses import replace

from benchmarks.detection.benign import plan, write
from benchmarks.detection.options import Options
from tests.benchmarks.detection.pairs import paired

OPTIONS = Options(({"name": "response"},), 1, 1, ("digits",), ("2 classes",), 1, 0, "command")
CALM = {
    "honest": 10,
    "client_rounds": 10,
    "silenced": 0,
    "worst_silenced": 0.0,
    "challenged": 0,
}
"""Figures of a run in which detectors alter nothing."""


def test_pairs_are_compared_over_all_fractions_and_for_each() -> None:
    (run,) = plan(OPTIONS)
    assert run.without == "detectors"
    results = [
        (replace(run, label={**run.label, "fraction": fraction}), paired(accuracy, **CALM))
        for fraction, accuracy in ((1.0, 0.75), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5))
    ]
    lines = list(write(OPTIONS, results))
    rows = [line for line in lines if line.startswith("| received")]
    assert rows == [
        "| received | 4 | -18.75 | -38.64 | +1.14 | -25.00 | +0.00 |",
        "| received, fraction 1 | 1 | +0.00 | -inf | +inf | +0.00 | +0.00 |",
        "| received, fraction 0.5 | 3 | -25.00 | -25.00 | -25.00 | -25.00 | -25.00 |",
    ]


def test_summoned_clients_count_as_changed_by_detectors() -> None:
    for summoned in (0, 3):
        results = [(run, paired(0.75, **CALM, examined=summoned)) for run in plan(OPTIONS)]
        text = "\n".join(write(OPTIONS, results))
        assert f"In {int(summoned > 0)} of them the detector" in text
