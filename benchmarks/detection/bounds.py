"""Exact bounds on the probability of an event per run, and confidence intervals of a mean."""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, stdev

LEVEL = 0.95


def upper(events: int, runs: int) -> float:
    """One-sided 95% Clopper-Pearson bound on the probability of an event per run.

    Without any event the bound is 1 - 0.05^(1/runs).

    >>> f"{upper(0, 300):.2%}, {upper(0, 20):.1%}"
    '0.99%, 13.9%'
    """
    from scipy.stats import beta

    return 1.0 if events >= runs else float(beta.ppf(LEVEL, events + 1, runs - events))


def interval(events: int, runs: int) -> tuple[float, float]:
    """Two-sided 95% Clopper-Pearson interval of the probability of an event per run.

    >>> low, high = interval(20, 20)
    >>> f"{low:.1%}, {high:.0%}"
    '83.2%, 100%'
    """
    from scipy.stats import beta

    half = (1 - LEVEL) / 2
    low = float(beta.ppf(half, events, runs - events + 1)) if events else 0.0
    high = float(beta.ppf(1 - half, events + 1, runs - events)) if events < runs else 1.0
    return low, high


def of_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95% t interval of independent values; the interval of one value is infinite.

    >>> [round(value, 2) for value in of_mean([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48]
    """
    from scipy.stats import t

    middle = fmean(values)
    if len(values) < 2:
        return middle, -inf, inf
    reach = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return middle, middle - reach, middle + reach
