"""The model `mean`: its output is a residual, and it is only for estimation tasks."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import build_module


def test_the_output_is_the_residual_of_every_sample() -> None:
    network = Stacked(models.build("mean").build((3,), 0))
    draws = torch.Generator().manual_seed(1)
    theta_K3, y_KB3 = torch.randn(4, 3, generator=draws), torch.randn(4, 5, 3, generator=draws)
    assert torch.equal(network.logits(theta_K3, y_KB3), theta_K3[:, None] - y_KB3)


@pytest.mark.parametrize(("model", "dataset"), [("mean", "digits"), ("mlp", "synthetic_means")])
def test_model_of_another_task_is_rejected(model: str, dataset: str) -> None:
    tables = {"name": "odd", "data": {"dataset": dataset}, "model": model}
    with pytest.raises(ConfigurationError, match=r"is for .*estimation"):
        build_module(Experiment.from_tables(tables))
