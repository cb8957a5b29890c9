"""Selects torch devices, and copies tensors to these devices."""

import os
from collections.abc import Sequence

import torch
import torch.utils.deterministic
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError


def device(name: str) -> torch.device:
    """The device with this name, such as cpu, cuda or cuda:1.

    If the device is a GPU, torch is set to use deterministic algorithms, so a repeated run gives
    bit-identical results. If an operation has no deterministic algorithm, torch warns.

    Raises:
        ConfigurationError: the device cannot be used.

    >>> device("cpu")
    device(type='cpu')
    """
    # To be deterministic, cuBLAS needs a workspace of fixed size. cuBLAS reads the size from an
    # environment variable when a process first uses cuBLAS.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        result = torch.device(name)
        # The copy to the CPU fails for a device that holds no data, such as `meta`.
        torch.empty(0, device=result).cpu()
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise ConfigurationError(f"device {name!r} cannot be used: {why}") from None
    if result.type == "cuda":
        prefer_deterministic()
    return result


def prefer_deterministic() -> None:
    """Makes torch use deterministic algorithms; torch warns if an operation has no such algorithm.

    If torch is already set to refuse operations without a deterministic algorithm, this setting
    stays.
    """
    if torch.get_deterministic_debug_mode():
        return
    torch.set_deterministic_debug_mode("warn")
    # By default, torch also fills uninitialized tensors when it uses deterministic algorithms.
    # Filling them takes time, and serves only to reveal errors.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # untyped


def to_device(
    values: Tensor | Sequence[float],
    to: torch.device | str,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Copies values to a device without waiting for the copy to finish.

    The device finishes the copy before it starts later operations on the values. If the target is
    the CPU, the function waits, so that the caller can read the result immediately.

    Args:
        values: a tensor, or numbers.
        to: the target device.
        dtype: dtype of the result. By default, a tensor keeps its dtype, and numbers get the dtype
            that `torch.tensor` chooses.

    >>> to_device([1, 2], "cpu", torch.float64)
    tensor([1., 2.], dtype=torch.float64)
    """
    held = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    up = torch.device(to).type != "cpu"
    return held.to(to, dtype or held.dtype, non_blocking=up)
