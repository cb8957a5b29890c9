"""Where tensors live, and how they get there."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError


def device(name: str) -> torch.device:
    """The device of that name, such as cpu, cuda or cuda:1.

    Raises:
        ConfigurationError: there is none; says why.

    >>> device("cpu")
    device(type='cpu')
    """
    try:
        found = torch.device(name)
        torch.empty(0, device=found).cpu()  # One that holds no numbers fails here.
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise ConfigurationError(f"device {name!r} cannot be used: {why}") from None
    return found


def to_device(
    values: Tensor | Sequence[float],
    to: torch.device | str,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Copies values to a device; the host does not wait until they have arrived.

    What runs on the device afterwards finds them there. Numbers that come down to the CPU have
    arrived: anyone may read them.

    Args:
        values: a tensor, or numbers.
        to: the device.
        dtype: that of the result; by default the tensor's own, for numbers that of `torch.tensor`.

    >>> to_device([1, 2], "cpu", torch.float64)
    tensor([1., 2.], dtype=torch.float64)
    """
    held = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    up = torch.device(to).type != "cpu"
    return held.to(to, dtype or held.dtype, non_blocking=up)
