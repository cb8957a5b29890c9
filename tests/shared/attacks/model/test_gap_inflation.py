"""Gap inflation: the false claim, and its weight in a rule that believes it."""

import pytest
import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks

KNOWLEDGE = Knowledge(4, 1)


def test_only_the_loss_gap_is_falsified() -> None:
    true = {"loss_gap": 0.5, "samples": 60.0}
    attack = attacks.build("gap_inflation", gap=500)
    assert attack.report(true, KNOWLEDGE) == {"loss_gap": 500.0, "samples": 60.0}
    assert true == {"loss_gap": 0.5, "samples": 60.0}


def test_update_is_crafted_by_the_inner_attack() -> None:
    attack = attacks.build("gap_inflation", attack={"name": "model_replacement", "scale": 3})
    assert attack.apply(torch.ones(1, 2), KNOWLEDGE).tolist() == [[3.0, 3.0]]


def test_one_inflated_gap_gets_all_the_weight_of_an_unbounded_softmax() -> None:
    attack = attacks.build("gap_inflation")
    honest = [{"loss_gap": gap} for gap in (0.4, 0.6, 0.5)]
    claims = [*honest, attack.report({"loss_gap": 0.5}, KNOWLEDGE)]
    gaps = torch.tensor([claim["loss_gap"] for claim in claims]).double()
    weights = (gaps / 4).softmax(dim=0)
    assert weights.tolist() == pytest.approx([0.0, 0.0, 0.0, 1.0])


def test_other_attacks_report_the_true_gap() -> None:
    assert attacks.build("sign_flip").report({"loss_gap": 0.5}, KNOWLEDGE) == {"loss_gap": 0.5}
