"""Sorting networks, pruned to the ranks that a rule needs.

A comparator (i, j, kind) puts the smaller value of wires i and j on wire i, and the larger value on
wire j. `kind` states which of the two values is used afterwards: the smaller, the larger, or both.
"""

import functools

KEEP_MIN, KEEP_MAX = 1, 2

Comparator = tuple[int, int, int]


def merge_exchange(n: int) -> list[tuple[int, int]]:
    """Batcher's merge exchange sort for n wires (Knuth, volume 3, algorithm 5.2.2 M).

    >>> merge_exchange(3)
    [(0, 2), (0, 1), (1, 2)]
    """
    pairs: list[tuple[int, int]] = []
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top
    while n > 1 and p:
        q, r, step = top, 0, p
        while True:
            pairs += [(i, i + step) for i in range(n - step) if i & p == r]
            if q == p:
                break
            step, q, r = q - p, q >> 1, p
        p >>= 1
    return pairs


@functools.lru_cache(maxsize=256)
def network(n: int, first: int, last: int, ordered: bool = False) -> tuple[Comparator, ...]:
    """Comparators that bring the values with the wanted ranks to wires `first`, ..., `last - 1`.

    The wanted ranks have the same numbers: `first`, ..., `last - 1`. The smallest value has rank 0.

    Args:
        ordered: whether the values on these wires must be in ascending order; if not, any order is
            allowed.

    >>> len(network(20, 0, 20, ordered=True)), len(network(20, 9, 11)), len(network(5, 0, 5))
    (97, 80, 0)
    """
    # The loop goes through the comparators from the last to the first. For each wire, `state` says
    # which value must be on this wire after the comparator. `unread`: any value, because nobody
    # reads the wire. `member`: a value with a wanted rank, no matter which of the wanted ranks.
    # `rank`: the value with one specific rank.
    unread, member, rank = range(3)
    wanted = rank if ordered else member
    state = [wanted if first <= wire < last else unread for wire in range(n)]
    kept: list[Comparator] = []
    for i, j in reversed(merge_exchange(n)):
        if state[i] == state[j] != rank:
            continue
        kind = (KEEP_MIN if state[i] else 0) | (KEEP_MAX if state[j] else 0)
        kept.append((i, j, kind))
        state[i] = state[j] = rank
    return tuple(reversed(kept))
