"""All functions turn shares of clients into counts by the same rule."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.phases import Span
from rampart_fl.shared.experiment.selection import Selection, drawn_count, quota, select, summon


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


NAMES = [f"c{i:02d}" for i in range(20)]
AWAITED = NAMES[:6]


def chosen(secret: int, round_: int = 0, awaited: Sequence[str] = AWAITED) -> Selection:
    """The selection of a round that draws eight of twenty clients."""
    return summon(1, secret, round_, NAMES, awaited, 8, 1.0)


def test_summons_do_not_change_how_many_updates_are_aggregated() -> None:
    for secret in range(50):
        for awaited in ([], NAMES[:1], AWAITED, NAMES[:15], NAMES):
            one = chosen(secret, awaited=awaited)
            assert set(one.examined) <= set(awaited) & set(one.clients)
            assert len(one.clients) - len(one.examined) == 8
            assert len(one.examined) <= 8


def test_all_awaited_clients_take_part_up_to_the_limit() -> None:
    assert all(set(AWAITED) <= set(chosen(secret).clients) for secret in range(50))
    many = [chosen(2, round_, NAMES) for round_ in range(20)]
    assert all(len(one.clients) == 16 for one in many)
    assert {client for one in many for client in one.clients} == {*NAMES}, "in turns"


@pytest.mark.parametrize("awaited", [NAMES[:1], AWAITED], ids=["alone", "six"])
def test_awaited_clients_count_as_often_as_others_and_cannot_know_when(
    awaited: list[str],
) -> None:
    """Even a client that alone is awaited cannot compute it from the public draw."""
    public = set(select(1, 0, NAMES, 0.4))
    counts = dict.fromkeys(awaited, 0)
    for secret in range(1000):
        one = chosen(secret, awaited=awaited)
        for client in awaited:
            counts[client] += client in one.clients and client not in one.examined
    assert public & {*AWAITED} and {*AWAITED} - public
    assert all(340 < count < 460 for count in counts.values()), "eight of twenty, in or out"


def test_nobody_is_summoned_without_need() -> None:
    partial = Experiment.load("digits-partial")
    names = partial.client_names
    nobody = Selection(partial.draw(0, names))
    assert partial.select(0, names, [], secret=3) == nobody
    assert partial.select(0, names, names[:3], secret=3) != nobody
    off = partial.model_copy(update={"server": partial.server.model_copy(update={"summons": 0.0})})
    assert off.select(0, names, names[:3], secret=3) == nobody
    everyone = Selection(tuple(sorted(names)))
    for complete in ({"policy": "buffered"}, {"fraction": 1.0}):
        assert partial.model_copy(update=complete).select(0, names, names[:3], 3) == everyone
    assert "client-00" not in partial.select(0, names[1:], names[:3], secret=3).clients
