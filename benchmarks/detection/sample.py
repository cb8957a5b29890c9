"""A seeded random sample of combinations in which every level occurs often enough."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.detection.combinations import FACTORS, Combination

OFTEN = 20
"""Minimum number of combinations that have a given level."""
TRIES = 300
"""Number of refused draws in a row after which a level counts as unavailable."""
Levels = Mapping[str, tuple[Any, ...]]


@dataclass
class Sample:
    """Combinations, and the reasons why others were refused.

    Args:
        combinations: admissible combinations. The first `free` of them were drawn uniformly from
            all levels; the rest were drawn to add levels that were too rare among the first ones.
        free: number of combinations that were drawn uniformly.
        refused: number of refused draws, keyed by reason.
        missing: the last reason for each unavailable level, keyed by (factor, level).
    """

    combinations: list[Combination] = field(default_factory=list)
    free: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    missing: dict[tuple[str, Any], str] = field(default_factory=dict)

    def count(self, factor: str, level: Any) -> int:
        """Number of combinations with a level."""
        return sum(getattr(one, factor) == level for one in self.combinations)

    def counts(self, levels: Levels = FACTORS) -> dict[tuple[str, Any], int]:
        """Number of combinations with each level, keyed by (factor, level)."""
        return {
            (factor, level): self.count(factor, level)
            for factor, known in levels.items()
            for level in known
        }


def draw(
    seed: int | str,
    count: int,
    refusal: Callable[[Combination], str | None],
    levels: Levels = FACTORS,
    often: int = OFTEN,
) -> Sample:
    """Draws `count` combinations uniformly, and more until `often` combinations have each level.

    Args:
        seed: seed of the sample, which determines the seeds of the runs.
        count: number of combinations that are drawn uniformly from all levels.
        refusal: returns why a combination cannot be run, or None if it can.
        levels: the possible levels, keyed by factor.
        often: minimum number of combinations that have a given level.
    """
    draws, sample = random.Random(seed), Sample()
    while len(sample.combinations) < count:
        combination, reason = _admissible(draws, sample, refusal, levels)
        if combination is None:
            raise ValueError(f"{TRIES} draws in a row were refused; the last one: {reason}")
        sample.combinations.append(combination)
    sample.free = len(sample.combinations)
    for factor, level in _short(sample, levels, often):
        only = {**levels, factor: (level,)}
        combination, reason = _admissible(draws, sample, refusal, only)
        if combination is None:
            sample.missing[factor, level] = reason
        else:
            sample.combinations.append(combination)
    return sample


def _short(sample: Sample, levels: Levels, often: int) -> Iterator[tuple[str, Any]]:
    """Yields each level that is in fewer than `often` combinations, until it is in `often`."""
    for key in sample.counts(levels):
        while sample.count(*key) < often and key not in sample.missing:
            yield key


def _admissible(
    draws: random.Random,
    sample: Sample,
    refusal: Callable[[Combination], str | None],
    levels: Levels,
) -> tuple[Combination | None, str]:
    """The next admissible draw, or None and the reason for the last refusal."""
    reason = ""
    for _ in range(TRIES):
        chosen = {factor: draws.choice(known) for factor, known in levels.items()}
        one = Combination(**chosen, seed=draws.randrange(1, 2**31))
        refused = refusal(one)
        if refused is None:
            return one, ""
        reason = refused
        # Reasons that differ only in their numbers count as one reason.
        sample.refused[re.sub(r"[\d.]*\d", "#", reason)] += 1
    return None, reason
