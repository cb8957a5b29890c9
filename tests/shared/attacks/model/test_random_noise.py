"""Random noise: each reading gives the upload that it describes."""

import pytest
import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError

START_D = torch.tensor([1.0, 2.0, 3.0])
FRESH_D = torch.tensor([10.0, 20.0, 40.0])


def round_of(**extra: object) -> Knowledge:
    return Knowledge(4, 1, reference_D=START_D, initial=lambda draws: FRESH_D, **extra)


def test_noise_has_the_deviation_of_the_honest_update() -> None:
    own_FD = torch.randn(2, 20_000, generator=torch.Generator().manual_seed(1)) * 3 + 5
    out_FD = attacks.build("random_noise").apply(own_FD, Knowledge(4, 2))
    torch.testing.assert_close(out_FD.std(dim=1), own_FD.std(dim=1), rtol=0.03, atol=0)
    assert float(out_FD.mean().abs()) < 0.1
    assert not torch.equal(out_FD[0], out_FD[1])


def test_constant_update_gets_no_noise() -> None:
    assert attacks.build("random_noise").apply(torch.ones(1, 5), Knowledge(4, 1)).tolist() == [
        [0.0] * 5
    ]


def test_parameters_reading_leads_to_a_fresh_model() -> None:
    own_FD = torch.full((1, 3), 7.0)
    out_FD = attacks.build("random_noise", reading="parameters").apply(own_FD, round_of())
    torch.testing.assert_close(START_D + out_FD[0], FRESH_D)


def test_interpolation_reading_leads_to_the_midpoint() -> None:
    own_FD = torch.full((1, 3), 7.0)
    out_FD = attacks.build("random_noise", reading="interpolation").apply(own_FD, round_of())
    torch.testing.assert_close(START_D + out_FD[0], (FRESH_D + START_D + own_FD[0]) / 2)


def test_received_customized_model_is_the_start() -> None:
    sent_FD = torch.zeros(1, 3)
    attack = attacks.build("random_noise", reading="parameters")
    torch.testing.assert_close(attack.apply(sent_FD, round_of(sent_FD=sent_FD))[0], FRESH_D)


def test_missing_knowledge_is_named_in_the_error() -> None:
    attack = attacks.build("random_noise", reading="parameters")
    with pytest.raises(ConfigurationError, match="randomly initialized model"):
        attack.apply(torch.ones(1, 3), Knowledge(4, 1, reference_D=START_D))
    with pytest.raises(ConfigurationError, match="from which the attackers started"):
        attack.apply(torch.ones(1, 3), Knowledge(4, 1, initial=lambda draws: FRESH_D))
