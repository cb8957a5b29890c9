"""Determines which clients take part in a round, and how many uploads close the round."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rampart_fl.shared.rounding import share
from rampart_fl.shared.seeding import derive


def select(
    seed: int,
    round_: int,
    candidates: Iterable[str],
    fraction: float,
    founders: int | None = None,
) -> tuple[str, ...]:
    """The clients drawn for a round: ceil(fraction · n) of the candidates, sorted by id.

    n is `founders` if `founders` is given; otherwise, n is the number of candidates. The draw is
    seeded, so every call gives the same result. The draw sorts the candidates by a hash of the
    seed, the round and the id. If one client joins or leaves, the draw therefore adds or drops at
    most one other client.

    >>> select(1, 0, ["b", "a"], 1.0)
    ('a', 'b')
    >>> len(select(1, 0, ["a", "b", "c"], 0.5)), len(select(1, 0, ["a", "b", "c"], 0.5, 5))
    (2, 3)
    """
    known = set(candidates)
    return _draw(seed, round_, known, drawn_count(founders or len(known), fraction))


@dataclass(frozen=True)
class Selection:
    """The clients that take part in a round.

    Args:
        clients: all clients that take part, sorted by id.
        examined: those of them whose uploads the round judges, but does not aggregate; sorted by
            id.
    """

    clients: tuple[str, ...]
    examined: tuple[str, ...] = ()


def summon(
    seed: int,
    secret: int,
    round_: int,
    candidates: Collection[str],
    awaited: Collection[str],
    count: int,
    most: float,
) -> Selection:
    """Selects the clients of a round if detectors await some clients.

    Of n candidates, `count` clients are drawn: the round aggregates their updates. Each awaited
    client is among them with the probability count / n, which only a secret draw decides. Of the
    other awaited clients, at most ceil(most · count) are summoned: the round only examines their
    uploads. An awaited client that takes part therefore cannot know whether its update counts. The
    public draw (`select`) fills the remaining places with clients that are not awaited.

    Args:
        seed: the experiment's seed, which decides who is drawn of the clients that are not awaited.
        secret: the seed that decides who is drawn of the awaited clients; no client knows it.
        round_: number of the round.
        candidates: the clients that can be selected.
        awaited: the clients whose next uploads a detector awaits.
        count: number of clients to draw; at most all candidates are drawn.
        most: limit on the number of summoned clients, as a multiple of `count`.

    >>> summon(1, 2, 0, "abcd", "", 2, 1.0) == Selection(select(1, 0, "abcd", 0.5))
    True
    >>> sorted({summon(1, secret, 0, "abcd", "a", 2, 1.0).examined for secret in range(20)})
    [(), ('a',)]
    """
    known = set(candidates)
    present = known.intersection(awaited)
    others = known - present
    places = {client: derive(secret, "awaited", round_, client) / 2**63 for client in present}
    ordered = sorted(present, key=lambda client: places[client])
    count = min(count, len(known))
    lucky = sum(place < count / len(known) for place in places.values())
    lucky = min(count, max(lucky, count - len(others)))
    drawn = (*ordered[:lucky], *_draw(seed, round_, others, count - lucky))
    examined = ordered[lucky : lucky + most_summoned(count, most)]
    return Selection(tuple(sorted((*drawn, *examined))), tuple(sorted(examined)))


def _draw(seed: int, round_: int, clients: Iterable[str], count: int) -> tuple[str, ...]:
    hashed = sorted(clients, key=lambda client: derive(seed, "selection", round_, client))
    return tuple(sorted(hashed[:count]))


def most_summoned(drawn: int, most: float) -> int:
    """The largest number of clients that a round summons, see `summon`.

    >>> most_summoned(5, 0.5)
    3
    """
    return share(most, drawn)


def drawn_count(clients: int, fraction: float) -> int:
    """The number of clients drawn for a round: the fraction of the clients, rounded up.

    >>> drawn_count(7, 0.5)
    4
    """
    return share(fraction, clients)


def quota(buffer: float, expected: int) -> int:
    """The number of uploads that close a round under the buffered policy.

    A `buffer` of at most 1 is a fraction of `expected`. The number `expected` counts the clients
    that can contribute an update to the round. A `buffer` above 1 is a number of uploads.

    >>> quota(0.5, 7), quota(10, 7), quota(3, 7)
    (4, 7, 3)
    """
    return max(1, count(buffer, expected))


def count(bound: float, of: int) -> int:
    """Converts a bound to a number of clients; `of` is the number of clients in the group.

    A `bound` of at most 1 is a fraction of the group. A larger `bound` is already a number of
    clients. The result is at most the size of the group.

    >>> count(0.8, 9), count(3, 9), count(12, 9)
    (8, 3, 9)
    """
    return min(of, share(bound, of) if bound <= 1 else int(bound))
