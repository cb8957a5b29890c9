"""Loads, draws and checks samples, because data sets and data attacks may be a user's own code.

Legend: n samples.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.datasets import Dataset, Samples

DTYPES = (torch.float32, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types that `Samples.x` may have: all integers are allowed, because they may be token ids."""


def load(member: Dataset) -> Samples:
    """All samples of a data set.

    Raises:
        ConfigurationError: the samples are unavailable, or differ from what the data set declares;
            the message names the data set.
    """
    with member.own_errors():
        samples: object = member.load()
    return _checked(member, samples)


def draw(member: Dataset, seed: int) -> Samples | None:
    """Draws samples and checks them; returns None if the data set does not depend on the seed."""
    with member.own_errors():
        samples: object = member.draw(seed)
    return None if samples is None else _checked(member, samples)


def poison(
    attack: DataAttack, x: Tensor, y: Tensor, classes: int, draws: torch.Generator, attacker: int
) -> tuple[Tensor, Tensor]:
    """Calls the attack's `apply`, and checks the poisoned samples and labels.

    Raises:
        ConfigurationError: the samples have another shape, there are not as many labels as samples,
            or the labels are not class numbers; the message names the attack.
    """
    with attack.own_errors():
        given: object = attack.apply(x, y, classes, draws, attacker)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ConfigurationError(
            f"data attack {attack.origin} returned {_described(given)}, not samples and labels"
        )
    x_bad, y_bad = given
    for problem in _poison_problems(x_bad, y_bad, x, classes):
        raise ConfigurationError(f"data attack {attack.origin}: {problem}")
    return x_bad, y_bad


def _checked(member: Dataset, samples: object) -> Samples:
    """The samples; raises an error if they are not what the data set declares."""
    if not isinstance(samples, Samples):
        raise ConfigurationError(
            f"data set {member.origin} returned {_described(samples)}, not Samples"
        )
    with member.own_errors():
        shape, classes = tuple(member.shape), member.classes
    for problem in _problems(samples, shape, classes):
        raise ConfigurationError(f"data set {member.origin}: {problem}")
    return samples


def _problems(samples: Samples, shape: tuple[int, ...], classes: int) -> Iterator[str]:
    """Yields what is wrong with the samples, the worst problem first.

    The caller stops at the first problem, because the next checks can raise errors if the samples
    have this problem.
    """
    x: Any = samples.x
    if not isinstance(x, Tensor) or x.dtype not in DTYPES:
        yield f"x is {_described(x)}, not a tensor of float32 or integers"
    if not x.ndim or not len(x):
        yield f"x has shape {tuple(x.shape)}, so there are no samples"
    yield from _label_problems(samples.y, len(x), classes)
    if tuple(x.shape[1:]) != shape:
        yield f"x has shape {tuple(x.shape)}, not (n, *{shape})"
    if samples.classes != classes:
        yield f"the samples have {samples.classes} classes, but the data set declares {classes}"
    scale: Any = samples.scale
    if not isinstance(scale, int | float) or not isfinite(scale) or scale <= 0:
        yield f"scale is {scale!r}, not a positive number"
    for name, dtype in (("groups", torch.int64), ("held_out", torch.bool)):
        extra: Any = getattr(samples, name)
        if extra is None:
            continue
        if not isinstance(extra, Tensor) or extra.dtype != dtype or extra.shape != (len(x),):
            yield f"{name} is {_described(extra)}, not a tensor of {dtype} with shape ({len(x)},)"
    # If x contains a NaN, its minimum is NaN. Unlike `isfinite`, `aminmax` needs no copy of x.
    if x.is_floating_point() and not bool(torch.stack(x.aminmax()).isfinite().all()):
        yield "x has values that are not finite"


def _label_problems(y: Any, n: int, classes: int) -> Iterator[str]:
    """What is wrong with the labels of n samples; see `_problems`."""
    if not isinstance(y, Tensor) or y.dtype != torch.int64:
        yield f"y is {_described(y)}, not a tensor of torch.int64"
    if y.shape != (n,):
        yield f"y has shape {tuple(y.shape)}, but there are {n} samples"
    low, high = (int(end) for end in y.aminmax())
    if low < 0 or high >= classes:
        yield f"y has numbers from {low} to {high}, outside 0..{classes - 1}"


def _poison_problems(x: Any, y: Any, clean: Tensor, classes: int) -> Iterator[str]:
    """What is wrong with an attacker's samples and labels; see `_problems`."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        yield f"the samples are {_described(x)}, not a tensor of {clean.dtype}"
    if x.shape[1:] != clean.shape[1:] or not len(x):
        yield f"the samples have shape {tuple(x.shape)}, not (n, *{tuple(clean.shape[1:])})"
    yield from _label_problems(y, len(x), classes)


def _described(value: object) -> str:
    """Describes a value for a message: a tensor by its dtype, any other value by its type."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} with shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__module__}.{type(value).__name__}"
