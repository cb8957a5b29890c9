"""Which slots of an experiment its attackers take."""

from typing import Literal

from rampart_fl.shared.seeding import derive

Placement = Literal["random", "last"]


def hostile_slots(placement: Placement, seed: int, clients: int, count: int) -> list[int]:
    """The attackers' slots, in the order in which groups of attackers fill them.

    Each slot's place in a random draw depends on the seed and the slot alone, so one attacker more
    adds a slot and moves nobody.

    Args:
        placement: "random" draws the slots from the seed, "last" takes the last ones in order.
        seed: of the experiment.
        clients: how many slots there are.
        count: how many of them attackers take.

    >>> hostile_slots("last", seed=1, clients=5, count=2)
    [3, 4]
    >>> hostile_slots("random", 1, 20, 3) == hostile_slots("random", 1, 20, 4)[:3]
    True
    """
    if placement == "last":
        return list(range(clients - count, clients))
    return sorted(range(clients), key=lambda slot: derive(seed, "placement", slot))[:count]
