"""Coarse-to-fine search for the weight of a term in the local objective.

If the weight is too small, the term does not protect the models. If the weight is too large, the
term prevents learning. The right weight depends on the model and the data. The search begins with a
sparse grid over several powers of ten. It continues with a denser grid around the best value
(MSDFL, section VII-F).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.simulation.federation import simulate


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Args:
        best: the value with the highest score; among values with equal scores, the smallest value.
        scores: the score of every value that was tried, keyed by value.
    """

    best: float
    scores: Mapping[float, float]


def coarse_to_fine(
    score: Callable[[float], float],
    low: float = 1e-6,
    high: float = 1e2,
    points: int = 3,
    refinements: int = 1,
) -> SearchResult:
    """Searches for a number on a logarithmic grid, then on denser grids around the best value.

    Each refinement is a grid of `2 * points - 1` values around the best value so far. Let s be the
    step of the previous grid on the logarithmic scale. The new grid begins s/2 below the best
    value, and ends s/2 above the best value. Values outside the bounds are skipped. No value is
    scored twice.

    Args:
        score: the function to maximize.
        low: the smallest value that the search may try.
        high: the largest value that the search may try.
        points: the number of values in the first grid.
        refinements: the number of grids after the first.

    >>> import math
    >>> result = coarse_to_fine(lambda value: -abs(math.log10(value) + 3))
    >>> result.best
    0.001
    >>> sorted(result.scores)
    [1e-06, 0.0001, 0.001, 0.01, 0.1, 1.0, 100.0]
    """
    if not 0 < low < high or points < 2:
        raise ConfigurationError(f"cannot make a grid of {points} values from {low:g} to {high:g}")
    step, scores = (high / low) ** (1 / (points - 1)), dict[float, float]()

    def best() -> float:
        return max(sorted(scores), key=lambda value: scores[value])

    def grid(start: float, count: int) -> None:
        for place in range(count):
            value = float(f"{start * step**place:.6g}")
            if low <= value <= high and value not in scores:
                scores[value] = score(value)

    grid(low, points)
    for _ in range(refinements):
        half, count = step**0.5, 2 * points - 1
        step = (step ** (1 / (count - 1))) if count > 1 else step
        grid(best() / half, count)
    return SearchResult(best(), scores)


def search_weight(
    experiment: Experiment,
    term: str = "hmsdfl",
    seeds: Sequence[int] | None = None,
    figure: str = "accuracy",
    **options: Any,
) -> SearchResult:
    """Searches for the weight at which a term gives the best final metric in simulation.

    The experiment's other terms and settings stay unchanged. The score of a weight is a final
    metric on the clients' test samples, averaged over the seeds. Use different seeds for the search
    and for the final run, so that partitions and splits differ.

    Args:
        experiment: the experiment to simulate.
        term: the name of a term of the objective; the term is added if the objective does not
            contain the term yet.
        seeds: the seeds to simulate; the experiment's own seed by default.
        figure: the name of one of the metrics that
            `rampart_fl.shared.figures.final.final_figures` returns.
        options: further arguments of `coarse_to_fine`.
    """

    def score(value: float) -> float:
        runs = [
            simulate(weighted(experiment, term, value).model_copy(update={"seed": seed}))
            for seed in seeds or [experiment.seed]
        ]
        figures: list[Mapping[str, Any]] = [run.figures for run in runs]
        return fmean(one[figure] for one in figures)

    return coarse_to_fine(score, **options)


def weighted(experiment: Experiment, term: str, value: float) -> Experiment:
    """A copy of an experiment in which one term of the objective has another weight.

    >>> result = weighted(Experiment.load("digits-benign"), "hmsdfl", 0.5)
    >>> result.training.objective
    [{'name': 'hmsdfl', 'lambda': 0.5}]
    """
    from rampart_fl.shared.learning.training.objectives import objectives

    old, key = experiment.training.objective, objectives.get(term).weight_name
    known = any(spec["name"] == term for spec in old)
    terms = [
        {**spec, key: value} if spec["name"] == term else spec
        for spec in (old if known else [*old, {"name": term}])
    ]
    training = experiment.training.model_copy(update={"objective": terms})
    return experiment.model_copy(update={"training": training})
