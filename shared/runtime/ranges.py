"""Lists of numbers as text, "0-5,9": the slots and positions that a process hosts."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import groupby

RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
"""A number, or the first and the last one of a range; five digits count all slots there may be."""


def parse_lists(text: str) -> list[list[int]]:
    """The lists that stand in a text one after the other, separated by spaces.

    Raises:
        ValueError: a list is wrong, or a number stands in two of them.

    >>> parse_lists("0-2 9 7,8")
    [[0, 1, 2], [9], [7, 8]]
    """
    lists = [parse_ranges(part) for part in text.split()]
    check_distinct(number for numbers in lists for number in numbers)
    return lists


def parse_ranges(text: str) -> list[int]:
    """The numbers that a text lists, in its order.

    Raises:
        ValueError: the text lists nothing, lists a number twice, or is no such list.

    >>> parse_ranges("0-2,9,7")
    [0, 1, 2, 9, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        found = RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(f'{text!r} is not a list of numbers and ranges such as "0-5,9"')
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"the range {part.strip()} runs backwards")
        numbers += range(first, last + 1)
    check_distinct(numbers)
    return numbers


def format_ranges(numbers: Iterable[int]) -> str:
    """The shortest text that lists these numbers in their order.

    >>> format_ranges([0, 1, 2, 9, 7])
    '0-2,9,7'
    """
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    parts = [[number for _, number in run] for _, run in runs]
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def check_distinct(numbers: Iterable[int]) -> None:
    """Refuses numbers that stand in a list twice."""
    twice = sorted(number for number, times in Counter(numbers).items() if times > 1)
    if twice:
        raise ValueError(f"listed twice: {format_ranges(twice)}")
