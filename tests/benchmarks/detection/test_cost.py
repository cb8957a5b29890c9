"""Every run of the section `cost` has a second run in which nobody attacks."""

import pytest

from benchmarks.detection.combinations import FACTORS, WIDE
from benchmarks.detection.cost import plan, write
from benchmarks.detection.loud import WITHIN
from benchmarks.detection.options import Options
from tests.benchmarks.detection.pairs import paired

OPTIONS = Options(({"name": "response"},), 1, 2, ("digits",), (), 0, 0, "command")


@pytest.mark.slow
def test_attacks_within_the_spread_run_only_where_the_spread_is_wide() -> None:
    runs = plan(OPTIONS)
    cells = {(run.label["attack"], run.label["fraction"]) for run in runs}
    assert cells == {(attack, fraction) for attack in WITHIN for fraction in FACTORS["fraction"]}
    assert len({run.key for run in runs}) == len(runs) == 2 * len(cells)
    assert {run.label["partition"] for run in runs} <= set(WIDE)
    assert {run.without for run in runs} == {"attackers"}


@pytest.mark.slow
def test_cost_is_the_accuracy_with_the_attack_minus_the_accuracy_without() -> None:
    runs = [run for run in plan(OPTIONS) if run.label["attack"] == "fang"]
    results = [(run, paired(0.5 + 0.25 * (run is runs[0]), fnr=1.0)) for run in runs]
    lines = [line for line in write(OPTIONS, results) if line.startswith("| fang, 0.2")]
    fraction = runs[0].label["fraction"]
    assert len(lines) == 1
    assert fraction == 1.0
    assert lines[0].count("-25.00 (-25.00 to -25.00)") == 2
    assert lines[0].endswith("| - |")
    (whole,) = [line for line in write(OPTIONS, results) if line.startswith("| fang, 1 ")]
    assert "-12.50 (-171.33 to +146.33)" in whole
