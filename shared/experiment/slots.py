"""Slots of clients in a run; a client's slot determines its data and whether it attacks."""

from collections.abc import Iterable, Mapping

from rampart_fl.shared.seeding import derive


def draw_slots(
    seed: int, clients: Iterable[str], requests: Mapping[str, int], most: int
) -> dict[str, int]:
    """Gives each client its own slot, as long as there are free slots.

    A client may ask for a slot between 0 and `most` - 1. If several clients ask for the same slot,
    the client with the smallest id gets it. All other clients get the lowest free slots, in an
    order drawn from the seed. If there are more clients than slots, the last clients in the drawn
    order get no slot.

    The draw sorts clients by a hash of the seed and the client's id. If no client asks for a slot,
    n clients hold the slots 0 to n - 1. If only one client asks for a particular slot, it gets
    this slot, no matter which other clients take part. So a client that asks for its previous slot
    keeps its data and its role, unless another client asks for the same slot.

    Args:
        seed: the seed of the experiment.
        clients: ids of the clients, in any order.
        requests: slots that clients ask for, keyed by client.
        most: the number of slots, which is also the largest number of clients in the run.

    Returns:
        The slots, keyed by client and sorted by client id. Clients without a slot are left out.

    >>> draw_slots(1, ["a", "b", "c"], {"c": 0, "b": 0}, most=3)
    {'a': 2, 'b': 0, 'c': 1}
    >>> draw_slots(1, ["a", "b", "c"], {"a": 7}, most=2)
    {'a': 1, 'c': 0}
    """
    everyone = sorted(set(clients))
    holders: dict[int, str] = {}
    for client in everyone:
        slot = requests.get(client, -1)
        if 0 <= slot < most:
            holders.setdefault(slot, client)
    placed = set(holders.values())
    others = [client for client in everyone if client not in placed]
    others.sort(key=lambda client: derive(seed, "slots", client))
    free = (slot for slot in range(most) if slot not in holders)
    slots = {client: slot for slot, client in holders.items()} | dict(
        zip(others, free, strict=False)
    )
    return dict(sorted(slots.items()))


def client_names(count: int) -> list[str]:
    """Names for clients, ordered by slot; all names have the same number of digits.

    >>> client_names(2)
    ['client-00', 'client-01']
    """
    width = max(2, len(str(count - 1)))
    return [f"client-{slot:0{width}d}" for slot in range(count)]
