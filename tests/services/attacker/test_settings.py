"""What an attacker's process is told has to make an attacker."""

import asyncio
from typing import Any

import pytest

from services.attacker.__main__ import AttackerSettings, attack


@pytest.mark.parametrize(
    ("told", "refusal"),
    [
        ({}, "needs --attack or --data-attack"),
        ({"attack": "lie", "members": 2}, "lie colludes: --cohort and --cohort-token are needed"),
        ({"attack": "mimic"}, "mimic colludes"),
        ({"data_attack": '{"name": dba}'}, "attack '{\"name\": dba}' is no JSON table: Expecting"),
        (
            {"attack": "lie", "members": 2, "cohort": "http://127.0.0.1:1"},
            "--cohort needs --cohort-token",
        ),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(told: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        asyncio.run(attack(AttackerSettings.model_validate(told)))
