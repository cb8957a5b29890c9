"""Norm riding: detectors accept the upload, but would flag a slightly longer one.

Legend: F attackers, B honest clients, D coordinates.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.engine import Plan

F, B, D = 3, 7, 500


def known(*detectors: Any, level: str = "full", **plan: Any) -> tuple[Tensor, Knowledge]:
    """The attackers' honest updates, and a round in which every client received another model."""
    draws = torch.Generator().manual_seed(1)

    def normal(*shape: int, spread: float = 1.0) -> Tensor:
        return spread * torch.randn(*shape, generator=draws)

    own_FD, reference_D = 0.3 + normal(F, D, spread=0.05), normal(D)
    sent_FD = reference_D + normal(F, D, spread=0.05)
    knowledge = Knowledge(
        participants=F + B,
        attackers=F,
        honest_BD=0.3 + normal(B, D, spread=0.05),
        honest_sent_BD=reference_D + normal(B, D, spread=0.05),
        colluders_MD=own_FD,
        colluders_sent_MD=sent_FD,
        sent_FD=sent_FD,
        reference_D=reference_D,
        plan=Plan.of("weighted_mean", detectors, **{"customizer": "fedcap", **plan}),
    )
    return own_FD, knowledge


def verdicts(uploads_FD: Tensor, knowledge: Knowledge) -> list[Verdict]:
    """The verdicts of the server's detector on these uploads among honest ones in a first round."""
    assert knowledge.honest_BD is not None
    assert knowledge.honest_sent_BD is not None
    assert knowledge.sent_FD is not None
    sent_ND = torch.cat([knowledge.honest_sent_BD, knowledge.sent_FD])
    raw_ND = torch.cat([knowledge.honest_BD, uploads_FD])
    plan = knowledge.plan
    rows_ND = sent_ND - knowledge.reference_D + raw_ND if plan.judges_models else raw_ND
    rows = Rows.of(rows_ND, metadata={"moved": raw_ND.norm(dim=1)})
    (detector,) = plan.detectors
    return list(detector.apply(rows, State(), Context())[0][B:])


def longer(uploads_FD: Tensor, knowledge: Knowledge, factor: float) -> Tensor:
    """Uploads whose calibrated updates are `factor` times as long."""
    assert knowledge.sent_FD is not None
    assert knowledge.reference_D is not None
    offset_FD = knowledge.sent_FD - knowledge.reference_D
    return factor * (uploads_FD + offset_FD) - offset_FD


@pytest.mark.parametrize("threshold", [0.1, 10.0, 300.0])
def test_calibrated_norm_is_just_below_the_servers_threshold(threshold: float) -> None:
    own_FD, knowledge = known({"name": "norm_bound", "threshold": threshold})
    out_FD = attacks.build("norm_riding", knows="full").apply(own_FD, knowledge)
    assert {v.decision for v in verdicts(out_FD, knowledge)} == {"accepted"}
    further_FD = longer(out_FD, knowledge, 1.002)
    assert {v.decision for v in verdicts(further_FD, knowledge)} == {"evicted"}
    assert knowledge.sent_FD is not None
    assert knowledge.reference_D is not None
    offset_FD = knowledge.sent_FD - knowledge.reference_D
    norms = (out_FD + offset_FD).norm(dim=1)
    torch.testing.assert_close(norms, torch.full((F,), 0.999 * threshold), rtol=1e-4, atol=0)
    cosines = torch.nn.functional.cosine_similarity(out_FD + offset_FD, own_FD + offset_FD)
    torch.testing.assert_close(cosines, torch.full((F,), -1.0))


def test_robust_distance_records_no_evidence_against_opposing_updates() -> None:
    own_FD, knowledge = known("robust_distance")
    out_FD = attacks.build("norm_riding", knows="full").apply(own_FD, knowledge)
    assert {(v.decision, v.evidence) for v in verdicts(out_FD, knowledge)} == {("accepted", 0.0)}
    further = verdicts(longer(out_FD, knowledge, 1.01), knowledge)
    assert max(v.evidence for v in further) > 0
    assert float(torch.nn.functional.cosine_similarity(out_FD, own_FD).max()) < -0.5


def test_attacker_shortens_its_honest_update_if_opposing_ones_are_detected() -> None:
    """Far from the global model, every upload that opposes the honest direction is suspicious."""
    own_FD, knowledge = known("robust_distance")
    assert knowledge.sent_FD is not None
    away_FD = knowledge.sent_FD + 0.4
    knowledge = replace(knowledge, sent_FD=away_FD, colluders_sent_MD=away_FD)
    out_FD = attacks.build("norm_riding", knows="full").apply(own_FD, knowledge)
    assert {(v.decision, v.evidence) for v in verdicts(out_FD, knowledge)} == {("accepted", 0.0)}
    assert knowledge.reference_D is not None
    offset_FD = away_FD - knowledge.reference_D
    calibrated_FD, honest_FD = out_FD + offset_FD, own_FD + offset_FD
    shares = calibrated_FD.norm(dim=1) / honest_FD.norm(dim=1)
    assert bool(((shares > 0.1) & (shares < 0.9)).all())
    assert shares.tolist() == pytest.approx([float(shares[0])] * F, rel=1e-4)
    cosines = torch.nn.functional.cosine_similarity(calibrated_FD, honest_FD)
    torch.testing.assert_close(cosines, torch.ones(F))


def test_raw_norm_is_bounded_if_the_server_judges_raw_uploads() -> None:
    detector = {"name": "norm_bound", "threshold": 5.0}
    own_FD, knowledge = known(detector, customizer="global_model", calibrate=False)
    out_FD = attacks.build("norm_riding", knows="full").apply(own_FD, knowledge)
    torch.testing.assert_close(out_FD.norm(dim=1), torch.full((F,), 4.995), rtol=1e-4, atol=0)
    assert {v.decision for v in verdicts(out_FD, knowledge)} == {"accepted"}


@pytest.mark.parametrize("detectors", [(), ("fedredefense",)], ids=["nobody", "no-length"])
def test_attack_threshold_applies_if_no_detector_checks_norms(detectors: tuple[str, ...]) -> None:
    own_FD, knowledge = known(*detectors, customizer="global_model")
    attack = attacks.build("norm_riding", knows="full", threshold=7.0)
    assert knowledge.sent_FD is not None
    assert knowledge.reference_D is not None
    calibrated_FD = attack.apply(own_FD, knowledge) + knowledge.sent_FD - knowledge.reference_D
    norms = calibrated_FD.norm(dim=1)
    torch.testing.assert_close(norms, torch.full((F,), 6.993), rtol=1e-4, atol=0)


def test_agnostic_attacker_takes_the_received_model_for_the_global_one() -> None:
    own_FD, knowledge = known({"name": "norm_bound", "threshold": 2.0})
    attack = attacks.build("norm_riding", threshold=2.0)
    out_FD = attack.apply(own_FD, knowledge.limited_to(attack.asks_for))
    torch.testing.assert_close(out_FD.norm(dim=1), torch.full((F,), 1.998), rtol=1e-5, atol=0)
    assert {v.decision for v in verdicts(out_FD, knowledge)} == {"evicted"}


def test_upload_opposes_the_honest_direction() -> None:
    out_D = craft("norm_riding", torch.tensor([[3.0, 4.0]]), n=4, m=1, threshold=2, margin=0.5)
    assert out_D.tolist() == pytest.approx([-0.6, -0.8])


def test_zero_honest_update_gives_a_zero_upload() -> None:
    assert craft("norm_riding", torch.zeros(2, 3), n=4, m=1).tolist() == [0.0] * 3
