"""The search for a weight: the grids of the paper's example, its bounds, and a real search."""

import math

import pytest

from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.simulation.tuning import coarse_to_fine, search_weight, weighted


def test_search_tries_the_grids_of_the_papers_example() -> None:
    """{1e-6, 1e-2, 1e2}, then five decades around 1e-2; the best is 1e-3."""
    values: list[float] = []

    def score(value: float) -> float:
        values.append(value)
        return -abs(math.log10(value) + 2.9)

    assert coarse_to_fine(score).best == 1e-3
    assert values == [1e-6, 1e-2, 1e2, 1e-4, 1e-3, 1e-1, 1.0]


def test_more_refinements_reduce_the_error() -> None:
    errors = []
    for refinements in range(4):
        search = coarse_to_fine(lambda v: -abs(math.log10(v) + 1.4), refinements=refinements)
        errors.append(abs(math.log10(search.best) + 1.4))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1


def test_search_stays_within_bounds_and_prefers_smaller_weights_on_ties() -> None:
    search = coarse_to_fine(lambda value: 0.0, low=0.1, high=10)
    assert search.best == 0.1
    assert all(0.1 <= value <= 10 for value in search.scores)


@pytest.mark.parametrize("bounds", [{"low": 0.0}, {"low": 2.0, "high": 1.0}, {"points": 1}])
def test_invalid_grids_are_rejected(bounds: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="cannot make a grid"):
        coarse_to_fine(lambda value: 0.0, **bounds)


def tiny() -> Experiment:
    return Experiment.from_tables(
        {
            "name": "tiny",
            "rounds": 5,
            "data": {"dataset": "digits", "clients": 4, "samples": 30},
            "model": {"name": "mlp", "hidden": [16]},
            "training": {"epochs": 4, "learning_rate": 0.1},
        }
    )


@pytest.mark.slow
def test_weights_that_prevent_learning_are_not_chosen() -> None:
    options = {"low": 1e-6, "high": 1e2, "points": 2, "refinements": 0}
    search = search_weight(tiny(), "fedprox", seeds=[1, 2], **options)
    assert search.best == 1e-6
    assert search.scores[1e-6] > search.scores[1e2]
    assert search_weight(tiny(), "fedprox", seeds=[1, 2], **options) == search


def test_setting_one_weight_keeps_other_terms() -> None:
    once = weighted(weighted(tiny(), "fedprox", 0.1), "hmsdfl", 0.2)
    assert weighted(once, "fedprox", 0.3).training.objective == [
        {"name": "fedprox", "mu": 0.3},
        {"name": "hmsdfl", "lambda": 0.2},
    ]


def test_an_unknown_term_is_refused() -> None:
    with pytest.raises(UnknownMember, match="hmsdlf"):
        search_weight(tiny(), "hmsdlf")
