"""Devices by name, and transfers of tensors to and from them."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.device import device, prefer_deterministic, to_device
from tests.fake_device import NAME, PretendedDevice


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "meta", ""])
def test_unavailable_device_is_named_in_the_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"device {name!r} cannot be used"):
        device(name)


def test_cpu_is_always_available() -> None:
    assert device("cpu") == torch.device("cpu")


def test_transfer_preserves_precision_and_dtype() -> None:
    assert to_device([0.1, 0.2], "cpu", torch.float64).tolist() == [0.1, 0.2]
    assert to_device([1, 2], "cpu").dtype == torch.int64
    assert to_device([], "cpu", torch.long).dtype == torch.long


def test_host_waits_only_for_transfers_from_the_device() -> None:
    with PretendedDevice() as device:
        there = to_device([1.0, 2.0], NAME)
        assert device.waits.total() == 0
        assert to_device(there, "cpu", torch.float64).tolist() == [1, 2]
        assert device.waits.total() == 1


@pytest.mark.parametrize(("before", "after"), [("default", 1), ("warn", 1), ("error", 2)])
def test_nondeterministic_operations_raise_a_warning_or_keep_raising_an_error(
    before: str, after: int
) -> None:
    mode, fills = torch.get_deterministic_debug_mode(), torch.utils.deterministic
    filled = fills.fill_uninitialized_memory
    try:
        torch.set_deterministic_debug_mode(before)
        prefer_deterministic()
        assert torch.get_deterministic_debug_mode() == after
    finally:
        torch.set_deterministic_debug_mode(mode)
        fills.fill_uninitialized_memory = filled
