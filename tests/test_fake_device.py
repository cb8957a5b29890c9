"""The fake device finds the errors that a real device would find."""

import pytest
import torch

from tests.fake_device import NAME, PretendedDevice, far, near


def test_pretended_device_raises_and_counts_waits_like_a_real_one() -> None:
    with PretendedDevice() as device:
        there, here = far(torch.arange(4.0)), torch.ones(4)
        with pytest.raises(RuntimeError, match="tensors on"):
            there + here
        with pytest.raises(RuntimeError, match="generator of the CPU"):
            torch.rand(3, generator=torch.Generator(), device=NAME)
        with pytest.raises(RuntimeError, match="not supported"):
            there.numpy()
        with pytest.raises(AssertionError, match="before it has arrived"):
            there.to("cpu", non_blocking=True)
        assert not device.waits
        for waits in (
            lambda: there.sum().item(),
            there.cpu,
            there.tolist,
            lambda: here.to(NAME),
            lambda: torch.tensor([1, 2], device=NAME),
            lambda: there[torch.tensor([0, 1])],
            lambda: there[there > 1],
            lambda: bool(there.any()),
        ):
            device.waits.clear()
            waits()
            assert device.waits.total() == 1
        device.waits.clear()
        there[there > 2] = 0
        there[1:].add_(here.to(NAME, non_blocking=True)[1:])
        assert not device.waits
        assert near(there).tolist() == [0, 2, 3, 1]
