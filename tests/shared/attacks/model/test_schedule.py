"""Schedules: in which rounds an attack is active, and how several attacks are combined."""

from dataclasses import replace

import pytest
import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError


def values(attack_name: str, rounds: int, **parameters: object) -> list[float]:
    attack = attacks.build(attack_name, **parameters)
    own_FD = torch.ones(1, 1)
    first = Knowledge(4, 1, own_FD, colluders_MD=own_FD)
    return [float(attack.apply(own_FD, replace(first, round=r))) for r in range(rounds)]


def test_attack_is_active_only_between_from_round_and_until_round() -> None:
    assert values("sign_flip", 6, from_round=2, until_round=4) == [1, 1, -1, -1, 1, 1]


def test_schedule_switches_attacks_between_rounds() -> None:
    change = [
        {"name": "sign_flip", "from_round": 1, "until_round": 3},
        {"name": "ipm", "epsilon": 5, "from_round": 3},
    ]
    assert values("schedule", 5, attacks=change) == [1, -1, -1, -5, -5]


def test_simultaneous_attacks_are_chained_in_order() -> None:
    both = ["sign_flip", {"name": "model_replacement", "scale": 7}]
    assert values("schedule", 2, attacks=both) == [-7, -7]
    assert values("schedule", 2, attacks=both, from_round=1) == [1, -7]


def test_attackers_share_one_draw_per_round_with_the_given_probability() -> None:
    attack = attacks.build("sign_flip", probability=0.3)
    shown = [attack.active(r, seed=4) for r in range(4000)]
    assert sum(shown) / 4000 == pytest.approx(0.3, abs=0.022)
    own_FD = torch.ones(5, 1)
    for r in range(20):
        assert len(attack.apply(own_FD, Knowledge(9, 5, round=r, seed=4)).unique()) == 1


def test_schedule_asks_for_the_highest_level_and_limits_each_part_to_its_own() -> None:
    parts = ["sign_flip", {"name": "lie", "knows": "full"}, "ipm"]
    attack = attacks.build("schedule", attacks=parts)
    assert attack.asks_for == "full"
    # Each part sees no more than its own level allows: ipm uses only the colluders' updates.
    knowledge = Knowledge(4, 1, torch.ones(3, 1), colluders_MD=torch.full((1, 1), 5.0))
    last = attacks.build("schedule", attacks=[*parts[:2], {"name": "ipm", "epsilon": 1}])
    assert float(last.apply(torch.ones(1, 1), knowledge)) == -5.0


def test_schedule_inherits_reports_and_rejoining_from_its_parts() -> None:
    attack = attacks.build("schedule", attacks=["rejoin", {"name": "gap_inflation", "gap": 3}])
    assert attack.rejoins
    assert attack.report({"loss_gap": 0.0}, Knowledge(4, 1)) == {"loss_gap": 3.0}


def test_unknown_or_missing_parts_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'lie'"):
        attacks.build("schedule", attacks=["lies"])
    with pytest.raises(ConfigurationError, match="attacks"):
        attacks.build("schedule", attacks=[])
