"""Pruned sorting networks; by the 0-1 principle, inputs of zeros and ones suffice."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rampart_fl.shared.robust.linalg.networks import KEEP_MAX, KEEP_MIN, merge_exchange, network


def through(values: list[float], comparators: tuple[tuple[int, int, int], ...]) -> list[float]:
    wires = list(values)
    for i, j, kind in comparators:
        low, high = min(wires[i], wires[j]), max(wires[i], wires[j])
        # An output that is never read may hold any value.
        wires[i] = low if kind & KEEP_MIN else float("nan")
        wires[j] = high if kind & KEEP_MAX else float("nan")
    return wires


@pytest.mark.parametrize("n", range(1, 12))
def test_ordered_network_sorts_every_zero_one_input(n: int) -> None:
    for values in product([0.0, 1.0], repeat=n):
        assert through(list(values), network(n, 0, n, ordered=True)) == sorted(values)


@pytest.mark.parametrize("n", range(1, 10))
def test_pruned_network_yields_the_requested_ranks_of_every_zero_one_input(n: int) -> None:
    for first in range(n):
        for last in range(first + 1, n + 1):
            comparators = network(n, first, last)
            for values in product([0.0, 1.0], repeat=n):
                result = through(list(values), comparators)[first:last]
                assert sorted(result) == sorted(values)[first:last]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.data())
@settings(deadline=None, max_examples=50)
def test_large_pruned_networks_yield_the_requested_ranks(
    values: list[float], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(values) - 1))
    last = data.draw(st.integers(first + 1, len(values)))
    result = through(values, network(len(values), first, last))[first:last]
    assert sorted(result) == sorted(values)[first:last]


def test_pruning_saves_comparators() -> None:
    assert len(merge_exchange(100)) == 1077
    assert len(network(100, 49, 51)) == 888
    assert len(network(100, 20, 80)) == 908
