"""The level's simulation bars honest clients no more often than the level allows."""

from math import sqrt

import pytest

from benchmarks.detection.level import LEVELS, bets, false_evictions

RUNS = 2_000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(bets()))
def test_default_detectors_keep_their_level(name: str) -> None:
    counts = false_evictions(5, bets()[name], runs=RUNS)
    assert counts.keys() == set(LEVELS)
    for level, count in counts.items():
        deviation = sqrt(RUNS * level * (1 - level))
        assert count <= RUNS * level + 3 * deviation, level
    assert counts[0.1] > counts[0.01] > 0
