"""The contract of all schedules: finite, positive factors that follow from the round alone."""

import math
from typing import Any

import pytest

from rampart_fl.shared.learning.training.schedules import Schedule, schedules

PARAMETERS: dict[str, dict[str, Any]] = {"step": {"every": 3}}
ROUNDS = [(round_, rounds) for rounds in (1, 2, 7, 30) for round_ in range(rounds)]
"""Each round's number, with the number of rounds of the experiment."""


@pytest.fixture(params=schedules.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def build(name: str) -> Schedule:
    return schedules.build(name, **PARAMETERS.get(name, {}))


def test_factor_is_finite_and_positive_in_every_round(name: str) -> None:
    member = build(name)
    for round_, rounds in ROUNDS:
        factor = member.share(round_, rounds)
        assert isinstance(factor, float)
        assert math.isfinite(factor) and factor > 0, (round_, rounds)


def test_factor_past_the_last_round_is_finite_and_non_negative(name: str) -> None:
    member = build(name)
    for late in (0, 1, 2, 50):
        factor = member.share(7 + late, 7)
        assert math.isfinite(factor) and factor >= 0


def test_factor_does_not_depend_on_earlier_calls(name: str) -> None:
    """A client that missed some rounds uses the same rate as all other clients."""
    forwards, backwards = build(name), build(name)
    first = {at: forwards.share(*at) for at in ROUNDS}
    again = {at: backwards.share(*at) for at in reversed(ROUNDS)}
    assert first == again == {at: build(name).share(*at) for at in ROUNDS}
