"""The crafted vector becomes the uploaded model, whatever model the attacker started from."""

import pytest
import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError

HONEST_BD = torch.tensor([[1.0, 0.0], [3.0, 4.0]])


@pytest.mark.parametrize("inside", ["lie", "min_max", "min_sum"])
def test_resulting_model_equals_the_crafted_vector(inside: str) -> None:
    sent_FD = torch.tensor([[5.0, 6.0], [7.0, -8.0]])
    knowledge = Knowledge(6, 2, HONEST_BD, reference_D=torch.ones(2), sent_FD=sent_FD)
    own_FD = torch.full((2, 2), 9.0)
    crafted_FD = attacks.build(inside).apply(own_FD, knowledge)
    out_FD = attacks.build("as_parameters", attack=inside).apply(own_FD, knowledge)
    torch.testing.assert_close(sent_FD + out_FD, crafted_FD)


def test_wrapper_asks_for_the_knowledge_of_its_inner_attack() -> None:
    assert attacks.build("as_parameters").asks_for == "partial"
    assert (
        attacks.build("as_parameters", attack={"name": "lie", "knows": "full"}).asks_for == "full"
    )
    with pytest.raises(ConfigurationError, match="from which the attackers started"):
        attacks.build("as_parameters").apply(torch.ones(1, 2), Knowledge(4, 1, HONEST_BD))
