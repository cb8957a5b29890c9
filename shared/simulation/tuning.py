"""The weight of a term of the local objective, searched from coarse to fine.

A weight that is too small defends nothing, one that is too large stops learning, and the right one
depends on model and data. A sparse grid over decades comes first, then a denser one around its best
value (MSDFL, section VII-F).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.simulation.federation import simulate


@dataclass(frozen=True)
class Search:
    """What a search found.

    Args:
        best: the value with the highest score; of equal ones the smallest.
        scores: of every value that was tried.
    """

    best: float
    scores: Mapping[float, float]


def coarse_to_fine(
    score: Callable[[float], float],
    low: float = 1e-6,
    high: float = 1e2,
    points: int = 3,
    refinements: int = 1,
) -> Search:
    """Searches a positive number by a logarithmic grid and denser grids around its best value.

    Each refinement spans half a step to both sides of the best value so far, with 2 · points - 1
    values that stay within the bounds. No value is scored twice.

    Args:
        score: the higher, the better.
        low: least value.
        high: largest value.
        points: values of the first grid.
        refinements: grids after the first.

    >>> import math
    >>> found = coarse_to_fine(lambda value: -abs(math.log10(value) + 3))
    >>> found.best
    0.001
    >>> sorted(found.scores)
    [1e-06, 0.0001, 0.001, 0.01, 0.1, 1.0, 100.0]
    """
    if not 0 < low < high or points < 2:
        raise ConfigurationError(f"no grid of {points} values from {low:g} to {high:g}")
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
    return Search(best(), scores)


def search_weight(
    experiment: Experiment,
    term: str = "hmsdfl",
    seeds: Sequence[int] | None = None,
    figure: str = "accuracy",
    **options: Any,
) -> Search:
    """The weight of a term under which an experiment, simulated, ends best.

    The experiment's other terms and settings stay; each weight is scored by the mean over seeds of
    one of the final figures. That is measured on clients' test samples, so the search wants seeds
    (and with them partitions and splits) that the final run does not use.

    Args:
        experiment: what to simulate.
        term: of the objective; added to it where it is not there yet.
        seeds: the experiment's own by default.
        figure: of `rampart_fl.shared.figures.final.final_figures`.
        options: of `coarse_to_fine`.
    """

    def score(value: float) -> float:
        runs = [
            simulate(weighted(experiment, term, value).model_copy(update={"seed": seed}))
            for seed in seeds or [experiment.seed]
        ]
        return fmean(run.figures[figure] for run in runs)

    return coarse_to_fine(score, **options)


def weighted(experiment: Experiment, term: str, value: float) -> Experiment:
    """An experiment with another weight of one term of its objective.

    >>> found = weighted(Experiment.load("digits-benign"), "hmsdfl", 0.5)
    >>> found.training.objective
    [{'name': 'hmsdfl', 'lambda': 0.5}]
    """
    from rampart_fl.shared.learning.objectives import objectives

    old, key = experiment.training.objective, objectives.get(term).weight_name
    known = any(spec["name"] == term for spec in old)
    terms = [
        {**spec, key: value} if spec["name"] == term else spec
        for spec in (old if known else [*old, {"name": term}])
    ]
    training = experiment.training.model_copy(update={"objective": terms})
    return experiment.model_copy(update={"training": training})
