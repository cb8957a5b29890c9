"""All functions turn shares of clients into counts by the same rule."""

from fractions import Fraction
from math import ceil

import pytest

from rampart_fl.shared.experiment.phases import Span
from rampart_fl.shared.experiment.selection import drawn_count, quota


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
