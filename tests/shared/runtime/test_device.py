"""Devices by name, and how tensors get there and back."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.device import device, to_device
from tests.fake_device import NAME, PretendedDevice


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "meta", ""])
def test_a_device_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"device {name!r} cannot be used"):
        device(name)


def test_the_cpu_is_always_there() -> None:
    assert device("cpu") == torch.device("cpu")


def test_numbers_are_sent_as_exactly_as_their_type_holds_them() -> None:
    assert to_device([0.1, 0.2], "cpu", torch.float64).tolist() == [0.1, 0.2]
    assert to_device([1, 2], "cpu").dtype == torch.int64
    assert to_device([], "cpu", torch.long).dtype == torch.long


def test_the_host_waits_for_what_comes_down_alone() -> None:
    with PretendedDevice() as device:
        there = to_device([1.0, 2.0], NAME)
        assert device.waits.total() == 0
        assert to_device(there, "cpu", torch.float64).tolist() == [1, 2]
        assert device.waits.total() == 1
