"""Determines which slots of an experiment the attackers take."""

from typing import Literal

from rampart_fl.shared.seeding import derive

Placement = Literal["random", "last"]


def hostile_slots(placement: Placement, seed: int, clients: int, count: int) -> list[int]:
    """The attackers' slots, in the order in which groups of attackers fill them.

    The draw sorts the slots by a hash of the seed and the slot. One more attacker therefore adds
    one slot to the drawn slots, and all other drawn slots stay the same.

    Args:
        placement: "random" draws the slots from the seed; "last" takes the last slots in order.
        seed: the seed of the experiment.
        clients: the number of slots.
        count: the number of slots that attackers take.

    >>> hostile_slots("last", seed=1, clients=5, count=2)
    [3, 4]
    >>> hostile_slots("random", 1, 20, 3) == hostile_slots("random", 1, 20, 4)[:3]
    True
    """
    if placement == "last":
        return list(range(clients - count, clients))
    return sorted(range(clients), key=lambda slot: derive(seed, "placement", slot))[:count]
