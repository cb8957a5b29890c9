"""Lists of numbers are formatted as text and parsed."""

from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.runtime.ranges import format_ranges, parse_ranges


@given(st.lists(st.integers(0, 99_999), min_size=1, unique=True))
def test_parsing_inverts_formatting(numbers: list[int]) -> None:
    assert parse_ranges(format_ranges(numbers)) == numbers


def test_consecutive_numbers_are_written_as_a_range() -> None:
    assert format_ranges([*range(3), 4, 9, 8]) == "0-2,4,9,8"
