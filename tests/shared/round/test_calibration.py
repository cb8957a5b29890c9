"""Calibration: the two models whose difference moves a row, worked out by hand.

Models are words here: nothing but their identity matters.
"""

import pytest

from rampart_fl.shared.round.calibration import offset


class Words:
    """Models by name: all clients but `new` have a model of their own."""

    def reference(self) -> str:
        return "global"

    def own(self, client: str) -> str:
        return "global" if client == "new" else f"own {client}"

    def same(self, one: str, other: str) -> bool:
        return one == other


WORDS = Words()


@pytest.mark.parametrize(
    ("client", "start", "expected"),
    [
        ("b", "global", None),
        ("b", "own b", ("own b", "global")),
        ("b", "an old model", ("an old model", "global")),
        ("new", "global", None),
    ],
)
def test_a_row_is_relative_to_the_global_model(
    client: str, start: str, expected: tuple[str, str] | None
) -> None:
    assert offset(WORDS, client, start) == expected


@pytest.mark.parametrize(
    ("client", "start", "expected"),
    [
        ("b", "own b", None),
        ("b", "global", ("global", "own b")),
        ("new", "global", None),
    ],
)
def test_a_row_of_an_isolated_group_is_relative_to_the_clients_own_model(
    client: str, start: str, expected: tuple[str, str] | None
) -> None:
    assert offset(WORDS, client, start, isolates=True) == expected
