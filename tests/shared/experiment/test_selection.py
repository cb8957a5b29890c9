"""All functions turn shares of clients into counts by the same rule."""

from fractions import Fraction
from math import ceil

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.phases import Span
from rampart_fl.shared.experiment.selection import Selection, drawn_count, quota, summon


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


def test_summoned_clients_change_from_round_to_round_and_are_awaited() -> None:
    awaited = [f"c{i}" for i in range(12)]
    chosen = [summon(1, 2, number, ["c0", "c1", "x", "y"], awaited, 1.0) for number in range(8)]
    for selection in chosen:
        assert {"c0", "c1", "x", "y"} < set(selection.clients) and len(selection.clients) == 8
        assert set(selection.examined) < {*awaited} & {*selection.clients}
        assert len(selection.examined) == 4
    assert {client for selection in chosen for client in selection.clients} >= {*awaited}


def test_awaited_clients_cannot_know_whether_their_uploads_count() -> None:
    """The drawn client and the added client count equally often, as the secret seed decides."""
    secrets = [summon(1, secret, 0, ["a", "b"], ["b", "c"], 1.0) for secret in range(400)]
    assert {selection.clients for selection in secrets} == {("a", "b", "c")}
    assert {selection.examined for selection in secrets} == {("b",), ("c",)}
    assert 150 < sum(selection.examined == ("b",) for selection in secrets) < 250


def test_nobody_is_summoned_without_need() -> None:
    partial = Experiment.load("digits-partial")
    names = partial.client_names
    drawn = partial.draw(0, names)
    nobody = Selection(drawn)
    awaited = sorted({*names} - {*drawn})
    assert partial.select(0, names, [], secret=3) == nobody
    assert partial.select(0, names, drawn, secret=3) == nobody, "all awaited clients are drawn"
    off = partial.model_copy(update={"server": partial.server.model_copy(update={"summons": 0.0})})
    assert off.select(0, names, awaited, secret=3) == nobody
    buffered = partial.model_copy(update={"policy": "buffered"})
    assert buffered.select(0, names, awaited, secret=3) == Selection(tuple(sorted(names)))
    left = sorted({*names} - {awaited[0]})
    assert awaited[0] not in partial.select(0, left, awaited, secret=3).clients
