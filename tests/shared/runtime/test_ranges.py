"""Lists of numbers as text: what is written is read back."""

from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.runtime.ranges import format_ranges, parse_ranges


@given(st.lists(st.integers(0, 99_999), min_size=1, unique=True))
def test_what_is_written_is_read_back(numbers: list[int]) -> None:
    assert parse_ranges(format_ranges(numbers)) == numbers


def test_runs_are_written_short() -> None:
    assert format_ranges([*range(3), 4, 9, 8]) == "0-2,4,9,8"
