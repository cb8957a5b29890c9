"""Non-finite uploads: the share of coordinates, and a rule that drops such uploads."""

import math

import pytest
import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.robust import aggregate


@pytest.mark.parametrize("value", ["nan", "inf", "negative_inf"])
def test_configured_share_of_the_coordinates_is_not_finite(value: str) -> None:
    out_D = craft("inf_nan", torch.ones(2, 40), n=4, m=1, value=value, share=0.25)
    broken = [u for u in out_D.tolist() if not math.isfinite(u)]
    assert len(broken) == 10
    assert [u for u in out_D.tolist() if math.isfinite(u)] == [1.0] * 30
    assert all(str(u) == {"negative_inf": "-inf"}.get(value, value) for u in broken)


def test_at_least_one_coordinate_is_not_finite() -> None:
    out_D = craft("inf_nan", torch.ones(2, 40), n=4, m=1, share=1e-6)
    assert int(out_D.isnan().sum()) == 1


def test_weighted_mean_drops_non_finite_updates() -> None:
    uploads_ND = torch.cat([torch.ones(3, 4), craft("inf_nan", torch.ones(3, 4), n=4, m=1)[None]])
    assert aggregate(uploads_ND, "weighted_mean").tolist() == [1.0] * 4
