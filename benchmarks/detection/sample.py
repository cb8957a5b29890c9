"""A seeded random sample of combinations in which every level occurs often enough."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.detection.combinations import FACTORS, Combination

OFTEN = 20
"""Combinations that every level is in at least."""
TRIES = 300
"""Refusals in a row after which a level counts as one that cannot be had."""
Levels = Mapping[str, tuple[Any, ...]]


@dataclass
class Sample:
    """Combinations, and what was left out.

    Args:
        combinations: admissible and distinct; the first ones were drawn from all levels alike.
        free: how many those are; the rest was drawn for levels that they held too seldom.
        refused: how many draws were refused, by reason.
        missing: levels that cannot be had, by (factor, level), each with the last reason.
    """

    combinations: list[Combination] = field(default_factory=list)
    free: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    missing: dict[tuple[str, Any], str] = field(default_factory=dict)

    def counts(self, levels: Levels = FACTORS) -> dict[tuple[str, Any], int]:
        """Combinations by (factor, level)."""
        return {
            (factor, level): sum(getattr(one, factor) == level for one in self.combinations)
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
    """`count` combinations drawn from all levels alike, and more until each level is in `often`.

    Args:
        seed: of the sample; the seeds of its runs follow from it.
        count: how many are drawn freely.
        refusal: why a combination cannot be run, or None.
        levels: what is drawn from, by factor.
        often: combinations that every level has to be in.
    """
    draws, sample = random.Random(seed), Sample()
    while len(sample.combinations) < count:
        found, reason = _admissible(draws, sample, refusal, levels)
        if found is None:
            raise ValueError(f"{TRIES} draws in a row were refused; the last one: {reason}")
        sample.combinations.append(found)
    sample.free = len(sample.combinations)
    for factor, level in _short(sample, levels, often):
        only = {**levels, factor: (level,)}
        found, reason = _admissible(draws, sample, refusal, only)
        if found is None:
            sample.missing[factor, level] = reason
        else:
            sample.combinations.append(found)
    return sample


def _short(sample: Sample, levels: Levels, often: int) -> Iterator[tuple[str, Any]]:
    """A level that is in too few combinations, again and again until there is none."""
    for key in sample.counts(levels):
        while sample.counts(levels)[key] < often and key not in sample.missing:
            yield key


def _admissible(
    draws: random.Random,
    sample: Sample,
    refusal: Callable[[Combination], str | None],
    levels: Levels,
) -> tuple[Combination | None, str]:
    """The next admissible draw; without one, the last reason."""
    reason = ""
    for _ in range(TRIES):
        chosen = {factor: draws.choice(known) for factor, known in levels.items()}
        one = Combination(**chosen, seed=draws.randrange(1, 2**31))
        refused = refusal(one)
        if refused is None:
            return one, ""
        reason = refused
        # Reasons alike but for their numbers count as one.
        sample.refused[re.sub(r"[\d.]*\d", "#", reason)] += 1
    return None, reason
