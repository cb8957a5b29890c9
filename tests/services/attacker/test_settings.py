"""The settings of an attacker's process must describe an attacker."""

import asyncio
from typing import Any

import pytest

from rampart_fl.services.attacker.__main__ import AttackerSettings, attack


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({}, "needs --attack or --data-attack"),
        ({"attack": "lie", "members": 2}, "lie colludes: --cohort and --cohort-token are needed"),
        ({"attack": "mimic"}, "mimic colludes"),
        (
            {"data_attack": '{"name": dba}'},
            "attack '{\"name\": dba}' is not a JSON object: Expecting",
        ),
        ({"slots": "3,7", "positions": "0"}, "1 positions for 2 slots"),
        ({"slots": "3,7", "positions": "1,1", "members": 2}, "listed twice: 1"),
        (
            {"slots": "3", "positions": "2", "members": 2},
            "position 2 is out of range for 2 members",
        ),
        ({"slots": "3,7"}, "position 1 is out of range for 1 members"),
        (
            {"attack": "lie", "members": 2, "cohort": "http://127.0.0.1:1"},
            "--cohort needs --cohort-token",
        ),
    ],
)
def test_invalid_attacker_settings_are_rejected_before_the_start(
    settings: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(ValueError, match=refusal):
        asyncio.run(attack(AttackerSettings.model_validate(settings)))


@pytest.mark.parametrize(
    ("settings", "held"),
    [
        ({"slots": "4,9"}, [0, 1]),
        ({"slots": "4,9", "positions": "5,2"}, [5, 2]),
        ({"slots": "1,4 9 12-13", "ordinal": 2}, [3, 4]),
    ],
)
def test_positions_follow_the_order_of_the_slots_unless_they_are_given(
    settings: dict[str, Any], held: list[int]
) -> None:
    assert AttackerSettings.model_validate({**settings, "members": 6}).own_positions == held
