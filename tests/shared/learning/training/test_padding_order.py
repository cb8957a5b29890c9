"""The order of clients in a group: who comes first, and when finished clients leave."""

import pytest

from rampart_fl.shared.learning.training.padding_order import FEWEST, order, step_ranges, unit

STEPS = [(7,), (3, 9), (4, 4, 4), (1, 30, 2, 2, 160, 7), tuple(range(1, 20)), (5, 1, 1, 1, 1, 1, 1)]


@pytest.mark.parametrize("apart", [1, 2, 4, 100])
@pytest.mark.parametrize("steps_K", STEPS, ids=str)
def test_order_puts_more_steps_first_and_moves_clients_by_multiples(
    steps_K: tuple[int, ...], apart: int
) -> None:
    placed = order(steps_K, apart)
    assert sorted(placed) == list(range(len(steps_K)))
    assert all((k - place) % apart == 0 for place, k in enumerate(placed))
    for place, later in zip(placed, placed[apart:], strict=False):
        assert steps_K[place] >= steps_K[later]


@pytest.mark.parametrize("apart", [1, 2, 4, 100])
@pytest.mark.parametrize("steps_K", STEPS, ids=str)
def test_clients_take_all_their_steps_in_the_smallest_allowed_groups(
    steps_K: tuple[int, ...], apart: int
) -> None:
    placed_K = [steps_K[k] for k in order(steps_K, apart)]
    result = step_ranges(placed_K, apart)
    assert [s for _, steps in result for s in steps] == list(range(max(steps_K)))
    for count, steps in result:
        assert (len(steps_K) - count) % apart == 0
        assert count >= min(FEWEST, len(steps_K))
        assert max(placed_K[count:], default=0) <= steps.start
        smaller = count - apart
        assert smaller < FEWEST or max(placed_K[smaller:]) >= steps.stop


def test_clients_with_equal_steps_keep_their_places() -> None:
    assert order([6, 6, 6, 6], apart=1) == [0, 1, 2, 3]
    assert step_ranges([6, 6, 6, 6], apart=1) == [(4, range(6))]


@pytest.mark.parametrize("dim", range(1, 9))
def test_unit_is_the_smallest_distance_with_equal_memory_alignment(dim: int) -> None:
    assert unit(dim) * dim % 4 == 0
    assert all(places * dim % 4 for places in range(1, unit(dim)))
