"""Calibration: the two models whose difference moves a row, worked out by hand.

Models are words here: nothing but their identity matters.
"""

from dataclasses import dataclass, field

import pytest

from rampart_fl.shared.round.calibration import offset


@dataclass
class Words:
    """Models by name: everyone has a model of its own, and some are challenged."""

    shifted: dict[str, str] = field(default_factory=dict)

    def reference(self) -> str:
        return "global"

    def own(self, client: str) -> str:
        return "global" if client == "new" else f"own {client}"

    def challenged(self, client: str) -> str | None:
        return self.shifted.get(client)

    def same(self, one: str, other: str) -> bool:
        return one == other


CHALLENGED = Words({"a": "shifted a", "new": "shifted global"})


@pytest.mark.parametrize(
    ("client", "started", "expected"),
    [
        ("b", "global", None),
        ("b", "own b", ("own b", "global")),
        ("b", "an old model", ("an old model", "global")),
        ("a", "own a", ("own a", "global")),
        ("a", "shifted a", ("own a", "global")),
        ("a", "shifted a round ago", ("shifted a round ago", "global")),
        ("b", "shifted a", ("shifted a", "global")),
        ("new", "shifted global", None),
    ],
)
def test_a_row_is_relative_to_the_global_model(
    client: str, started: str, expected: tuple[str, str] | None
) -> None:
    assert offset(CHALLENGED, client, started) == expected


@pytest.mark.parametrize(
    ("client", "started", "expected"),
    [
        ("b", "own b", None),
        ("b", "global", ("global", "own b")),
        ("a", "shifted a", None),
        ("new", "global", None),
        ("new", "shifted global", None),
    ],
)
def test_a_row_of_an_isolated_group_is_relative_to_the_clients_own_model(
    client: str, started: str, expected: tuple[str, str] | None
) -> None:
    assert offset(CHALLENGED, client, started, isolates=True) == expected
