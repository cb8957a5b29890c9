"""Inner-product manipulation against the factor that it gives a plain mean."""

import pytest
import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.robust import aggregate


@pytest.mark.parametrize(("n", "m", "factor"), [(20, 6, -5.3), (36, 10, -9.278), (10, 0, 1.0)])
def test_plain_mean_is_multiplied_by_the_known_factor(n: int, m: int, factor: float) -> None:
    honest_BD = torch.randn(n - m, 5, generator=torch.Generator().manual_seed(1)).double()
    crafted_D = craft("ipm", honest_BD, n=n, m=m)
    uploads_ND = torch.cat([honest_BD, crafted_D.expand(m, -1)])
    expected_D = factor * honest_BD.mean(dim=0)
    torch.testing.assert_close(
        aggregate(uploads_ND, "weighted_mean"), expected_D, rtol=1e-4, atol=1e-4
    )


def test_epsilon_can_be_configured() -> None:
    honest_BD = torch.tensor([[1.0, 0.0], [3.0, 2.0]])
    assert craft("ipm", honest_BD, n=20, m=6, epsilon=0.1).tolist() == pytest.approx([-0.2, -0.1])
