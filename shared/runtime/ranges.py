"""Lists of numbers as text, such as "0-5,9"; users give slots and positions of clients this way."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import groupby

RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
"""Matches a number or a range ("first-last"). No slot number has more than five digits."""


def parse_lists(text: str) -> list[list[int]]:
    """Parses several lists, which are separated by spaces.

    Raises:
        ValueError: a list is wrong, or two lists contain the same number.

    >>> parse_lists("0-2 9 7,8")
    [[0, 1, 2], [9], [7, 8]]
    """
    lists = [parse_ranges(part) for part in text.split()]
    check_distinct(number for numbers in lists for number in numbers)
    return lists


def parse_ranges(text: str) -> list[int]:
    """Parses one list; returns its numbers in the same order.

    Raises:
        ValueError: the text is empty, is not a list of numbers and ranges, or lists a number twice.

    >>> parse_ranges("0-2,9,7")
    [0, 1, 2, 9, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f'{text!r} is not a list of numbers and ranges such as "0-5,9"')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"the range {part.strip()} runs backwards")
        numbers += range(first, last + 1)
    check_distinct(numbers)
    return numbers


def format_ranges(numbers: Iterable[int]) -> str:
    """The shortest text that lists these numbers in this order.

    >>> format_ranges([0, 1, 2, 9, 7])
    '0-2,9,7'
    """
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    parts = [[number for _, number in run] for _, run in runs]
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def check_distinct(numbers: Iterable[int]) -> None:
    """Raises `ValueError` if a number occurs twice."""
    twice = sorted(number for number, times in Counter(numbers).items() if times > 1)
    if twice:
        raise ValueError(f"these numbers are listed twice: {format_ranges(twice)}")
