"""Where tensors live, by name."""

import torch

from shared.errors import ConfigurationError


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
