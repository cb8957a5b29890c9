"""Tries out a module that a user wrote: it must map a batch of samples to logits."""

import copy

import torch
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError


def try_module(
    module: nn.Module, who: str, shape: tuple[int, ...], classes: int, training: bool
) -> None:
    """Runs a copy of the module on a batch of zeros.

    Args:
        module: the module; it is not changed.
        who: the name of the module in error messages.
        shape: shape of a sample.
        classes: number of classes.
        training: whether the module runs in training mode.
    Raises:
        ConfigurationError: the module fails, or does not return logits.

    >>> try_module(nn.Linear(3, 2), "model 'mine'", (3,), 4, training=False)
    Traceback (most recent call last):
        ...
    rampart_fl.shared.errors.ConfigurationError: model 'mine' maps a batch of shape (2, 3) to \
(2, 2), not to logits (2, 4)
    """
    batch, trial = torch.zeros(2, *shape), copy.deepcopy(module).train(training)
    try:
        with torch.no_grad():
            logits = trial(batch)
    except Exception as error:  # The user's code may raise anything.
        raise ConfigurationError(
            f"{who} fails on a batch of shape {tuple(batch.shape)}: {type(error).__name__}: {error}"
        ) from None
    if not isinstance(logits, Tensor) or logits.shape != (2, classes):
        output = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ConfigurationError(
            f"{who} maps a batch of shape {tuple(batch.shape)} to {output}, not to "
            f"logits {(2, classes)}" + (" in training" if training else "")
        )
