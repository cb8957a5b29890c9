"""RFA's default settings."""

import torch

from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.rules import rules


def test_rfa_equals_the_geometric_median_with_the_paper_s_settings() -> None:
    block_ND = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    weights = [3, 1, 1, 2, 5, 1]
    spelt_out = {
        "name": "geometric_median",
        "nu": 1e-5,
        "iterations": 4,
        "tolerance": 1e-6,
        "weighted": True,
    }
    found_D = aggregate(block_ND, "rfa", weights=weights)
    assert torch.equal(found_D, aggregate(block_ND, spelt_out, weights=weights))
    assert rules.get("rfa").name == "rfa" and rules.get("geometric_median").name != "rfa"
