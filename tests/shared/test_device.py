"""Devices by name."""

import pytest
import torch

from shared.device import device
from shared.errors import ConfigurationError


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "meta", ""])
def test_a_device_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"device {name!r} cannot be used"):
        device(name)


def test_the_cpu_is_always_there() -> None:
    assert device("cpu") == torch.device("cpu")
