"""All functions turn shares of clients into counts by the same rule."""

from fractions import Fraction
from math import ceil

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.phases import Span
from rampart_fl.shared.experiment.selection import drawn_count, quota, summon


@pytest.mark.parametrize("clients", [1, 7, 20, 100, 1000])
def test_all_functions_round_shares_of_clients_up_alike(clients: int) -> None:
    for percent in range(1, 101):
        fraction, exact = percent / 100, ceil(Fraction(percent, 100) * clients)
        span = Span(min=fraction, max=fraction)
        counts = {
            drawn_count(clients, fraction),
            quota(fraction, clients),
            span.least(clients),
            span.most(clients),
        }
        assert counts == {exact}, percent


def test_a_quota_is_at_least_one_and_at_most_all() -> None:
    assert [quota(0.5, 0), quota(10, 7), quota(3, 7)] == [1, 7, 3]


def test_summoned_clients_change_from_round_to_round_and_never_include_drawn_clients() -> None:
    awaited = [f"c{i}" for i in range(12)]
    rounds = [summon(1, number, awaited[:4], awaited, 1.0) for number in range(8)]
    assert all(len(summoned) == 4 for summoned in rounds)
    assert {client for summoned in rounds for client in summoned} == {*awaited[4:]}
    assert summon(1, 0, awaited[:4], awaited, 0) == ()


def test_only_candidates_are_summoned_and_nobody_under_the_buffered_policy() -> None:
    partial = Experiment.load("digits-partial")
    names = partial.client_names
    drawn = partial.draw(0, names)
    awaited = sorted({*names} - {*drawn})
    assert partial.summon(0, drawn, {*drawn, awaited[0]}, awaited) == (awaited[0],)
    buffered = partial.model_copy(update={"policy": "buffered"})
    assert buffered.summon(0, buffered.draw(0, names), names, names) == ()
