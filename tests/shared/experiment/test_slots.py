"""Slots of a run: requests first, then a draw that depends only on the seed and the IDs."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rampart_fl.shared.experiment.slots import client_names, draw_slots

IDS = st.sets(st.text("abcdef-0123456789", min_size=1, max_size=6), max_size=12)
SEEDS = st.integers(0, 2**31 - 1)


@st.composite
def draws(draw: st.DrawFn) -> tuple[int, set[str], dict[str, int], int]:
    clients = draw(IDS)
    requests = draw(st.dictionaries(st.sampled_from([*clients, "stranger"]), st.integers(-2, 15)))
    return draw(SEEDS), clients, requests, draw(st.integers(1, 15))


@given(draws())
def test_slots_are_unique_and_as_many_as_possible_are_taken(
    case: tuple[int, set[str], dict[str, int], int],
) -> None:
    seed, clients, requests, most = case
    slots = draw_slots(seed, clients, requests, most)
    assert len(set(slots.values())) == len(slots) == min(len(clients), most)
    assert set(slots) <= clients and all(0 <= slot < most for slot in slots.values())
    assert list(slots) == sorted(slots)


@given(draws())
def test_requested_slot_goes_to_the_first_id_that_requests_it(
    case: tuple[int, set[str], dict[str, int], int],
) -> None:
    seed, clients, requests, most = case
    slots = draw_slots(seed, clients, requests, most)
    for wanted in range(most):
        askers = sorted(client for client in clients if requests.get(client) == wanted)
        if askers:
            assert slots[askers[0]] == wanted


@given(draws())
def test_other_clients_get_the_lowest_free_slots(
    case: tuple[int, set[str], dict[str, int], int],
) -> None:
    seed, clients, requests, most = case
    slots = draw_slots(seed, clients, requests, most)
    given_away = {slot for client, slot in slots.items() if requests.get(client) == slot}
    drawn = sorted(set(slots.values()) - given_away)
    untaken = [slot for slot in range(most) if slot not in slots.values()]
    assert not drawn or not untaken or drawn[-1] < untaken[0]


@given(draws(), st.randoms(use_true_random=False))
def test_draw_does_not_depend_on_the_order_of_clients(
    case: tuple[int, set[str], dict[str, int], int], shuffler: random.Random
) -> None:
    seed, clients, requests, most = case
    shuffled = sorted(clients)
    shuffler.shuffle(shuffled)
    pairs = list(requests.items())
    shuffler.shuffle(pairs)
    expected = draw_slots(seed, sorted(clients), requests, most)
    assert draw_slots(seed, [*shuffled, *shuffled], dict(pairs), most) == expected


@given(SEEDS, IDS, st.integers(1, 12))
def test_fewer_slots_keep_the_same_clients_in_the_first_slots(
    seed: int, clients: set[str], most: int
) -> None:
    everyone = draw_slots(seed, clients, {}, len(clients) or 1)
    assert draw_slots(seed, clients, {}, most) == {
        client: slot for client, slot in everyone.items() if slot < most
    }


def test_clients_that_request_their_own_slots_keep_them() -> None:
    requests = {f"client-{slot:02d}": slot for slot in range(20)}
    assert draw_slots(3, requests, requests, 20) == requests
    del requests["client-07"]
    assert draw_slots(3, requests, requests, 20) == requests


def test_slot_draw_is_stable_across_versions() -> None:
    """These slots are stored in runs: a change of the draw would change runs that resume."""
    clients = [f"client-{slot:02d}" for slot in range(6)]
    drawn = draw_slots(1, clients, {}, 6)
    assert list(drawn.values()) == [3, 1, 0, 5, 2, 4]
    assert len({tuple(draw_slots(seed, clients, {}, 6).values()) for seed in range(50)}) > 40


@settings(max_examples=20)
@given(st.integers(1, 3000))
def test_client_names_sort_in_slot_order(count: int) -> None:
    names = client_names(count)
    assert len(set(names)) == count
    assert names == sorted(names)
