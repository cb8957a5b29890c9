"""Cosine consistency against a plain loop."""

from statistics import median

import torch

from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.detectors.cosine import Cosine


def test_score_is_the_median_cosine_to_the_other_updates() -> None:
    block_ND = torch.randn(6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    verdicts, _ = Cosine(threshold=0.1).apply(Rows.of(block_ND), State(), Context())
    for i, verdict in enumerate(verdicts):
        others = [
            float(torch.cosine_similarity(block_ND[i], block_ND[j], dim=0))
            for j in range(6)
            if j != i
        ]
        assert abs(verdict.score - median(others)) < 1e-9
        assert verdict.decision == ("rejected" if median(others) < 0.1 else "accepted")


def test_mutually_consistent_minority_is_evicted() -> None:
    block_ND = torch.cat([torch.ones(5, 3), -torch.ones(4, 3)])
    verdicts, _ = Cosine(decision="evicted").apply(Rows.of(block_ND), State(), Context())
    assert [verdict.decision for verdict in verdicts] == ["accepted"] * 5 + ["evicted"] * 4


def test_zero_update_is_rejected_and_a_lone_update_accepted() -> None:
    block_ND = torch.cat([torch.zeros(1, 2), torch.ones(3, 2)])
    verdicts, _ = Cosine().apply(Rows.of(block_ND), State(), Context())
    assert (verdicts[0].score, verdicts[0].decision) == (-1, "rejected")
    ((alone,), _) = Cosine().apply(Rows.of(-torch.ones(1, 2)), State(), Context())
    assert alone.decision == "accepted"


def test_colluders_below_the_stated_bound_get_no_honest_client_rejected() -> None:
    """Honest rows at acute angles, colluders opposite: the bound holds only below (n - 1)/2."""
    draws = torch.Generator().manual_seed(3)
    honest_BD = torch.ones(7, 40) + 0.5 * torch.randn(7, 40, generator=draws)
    for colluders, framed in [(5, 0), (6, 7)]:
        crafted_FD = -honest_BD.mean(0).expand(colluders, -1)
        rows = Rows.of(torch.cat([honest_BD, crafted_FD]))
        verdicts, _ = Cosine().apply(rows, State(), Context())
        assert sum(v.decision == "rejected" for v in verdicts[:7]) == framed
