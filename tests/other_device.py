"""The device on which tests repeat computations of the CPU: a pretended device, or a GPU.

By default, tests pretend (`tests/fake_device.py`). `make test-gpu` sets RAMPART_TEST_DEVICE, and so
runs the same tests on a GPU.
"""

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from tests import fake_device

# cuBLAS reads this variable when it is used for the first time.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
NAME = os.environ.get("RAMPART_TEST_DEVICE", fake_device.NAME)
DEVICE = torch.device(NAME)
PRETENDED = fake_device.NAME == NAME

SUMS: dict[str, float] = {} if PRETENDED else {"rtol": 1e-4, "atol": 1e-4}
"""Tolerances of float32 results, because a GPU adds in another order than the CPU.

Without a GPU, each comparison has its own tolerances, or those of `torch.testing.assert_close`."""
WAIT = "called a synchronizing CUDA operation"


class Waits(Protocol):
    """Counts how often the host waited for the device."""

    waits: Counter[str]


class _Gpu:
    """The counts of a GPU; the keys are the lines of code at which torch reported a wait."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()


@contextmanager
def _gpu() -> Iterator[_Gpu]:
    counts = _Gpu()

    def count(message: Warning | str, category: Any, file: str, line: int, *rest: Any) -> None:
        if WAIT in str(message):
            counts.waits[f"{file}:{line}"] += 1
        else:
            show(message, category, file, line, *rest)

    precise, mode = torch.backends.cudnn.allow_tf32, torch.get_deterministic_debug_mode()
    show = warnings.showwarning
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        warnings.filterwarnings("always", WAIT)
        warnings.showwarning = count
        torch.backends.cudnn.allow_tf32 = False
        # As in the worker, an operation that is not deterministic fails.
        torch.set_deterministic_debug_mode("error")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield counts
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.set_deterministic_debug_mode(mode)
            torch.backends.cudnn.allow_tf32 = precise


def other_device() -> AbstractContextManager[Waits]:
    """A context in which tensors can be created on `NAME`, moved to and from it, and used."""
    return fake_device.PretendedDevice() if PRETENDED else _gpu()


def far(tensor: Tensor) -> Tensor:
    """A copy of a tensor, on the device."""
    return fake_device.far(tensor) if PRETENDED else tensor.detach().clone().to(DEVICE)


def near(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, which must be on the device."""
    if PRETENDED:
        return fake_device.near(tensor)
    assert tensor.device.type == DEVICE.type
    return tensor.cpu()
