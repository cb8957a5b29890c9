"""Which clients take part in a round, and how many of them close it."""

from collections.abc import Iterable

from rampart_fl.shared.seeding import derive


def select(seed: int, round_: int, candidates: Iterable[str], fraction: float) -> tuple[str, ...]:
    """The clients drawn for a round: ceil(fraction · n) of the candidates, sorted by id.

    The draw is seeded and does not depend on who asks or when. Each candidate's place in it depends
    on its id alone, so one that joins or leaves moves at most one other in or out.

    >>> select(1, 0, ["b", "a"], 1.0)
    ('a', 'b')
    >>> len(select(1, 0, ["a", "b", "c"], 0.5))
    2
    """
    drawn = sorted(set(candidates), key=lambda client: derive(seed, "selection", round_, client))
    return tuple(sorted(drawn[: drawn_of(len(drawn), fraction)]))


def drawn_of(clients: int, fraction: float) -> int:
    """How many of the clients are drawn for a round: ceil(fraction · n).

    >>> drawn_of(7, 0.5)
    4
    """
    return -int(-(fraction * clients - 1e-9) // 1)


def quota(buffer: float, expected: int) -> int:
    """Arrivals that close a round of the buffered policy: a number, or up to 1 a share of all.

    >>> quota(0.5, 7), quota(10, 7), quota(3, 7)
    (4, 7, 3)
    """
    return max(1, min(expected, int(buffer if buffer > 1 else -(-buffer * expected // 1))))
