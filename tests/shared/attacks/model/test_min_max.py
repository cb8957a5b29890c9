"""Min-max by hand; `test_optimized.py` compares it with a brute-force search."""

import pytest
import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError


def test_gamma_for_a_square_equals_the_value_computed_by_hand() -> None:
    """The farthest corner from the origin is as far as the diagonal, the largest distance."""
    square_BD = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]]).double()
    u_D = craft("min_max", square_BD, n=6, m=2)
    assert u_D.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    gamma = float((1 - u_D[0]) / square_BD.std(dim=0)[0])
    assert gamma == pytest.approx(0.8660, abs=1e-4)


def test_squared_option_without_effect_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="squared"):
        attacks.build("min_max", squared=False)
