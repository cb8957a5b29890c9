"""A fake device: its tensors report this device but keep their numbers on the CPU.

On machines without a GPU, it finds the errors that a GPU would: an operation on tensors of two
devices fails, and so does a read of numbers that bypasses the device. It also counts how often the
host would wait for the device. Every build of torch has the device type `lazy`, and no build has
kernels for it.
"""

import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "lazy:0"
DEVICE = torch.device(NAME)
READS = {"_local_scalar_dense", "bincount", "equal", "masked_select", "nonzero"}
READS |= {"_unique2", "unique_consecutive", "unique_dim"}
"""Operations that return a number to the host, or a tensor whose size depends on the numbers."""
COPIES = {"_to_copy", "copy_"}
INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that also take indices from the host, and wait until they are on the device."""


class Far(Tensor):
    """A tensor on the fake device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Far":
        made: Far = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
            requires_grad=held.requires_grad,
        )
        made.held = held
        return made

    def tolist(self) -> Any:
        """The numbers, from a copy: torch's `tolist` does not support subclasses."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} runs where its device is not pretended")


class PretendedDevice(TorchDispatchMode):
    """While it is entered, tensors can be created on `NAME`, moved to and from it, and used.

    >>> with PretendedDevice() as device:
    ...     ones = torch.ones(2).to(NAME, non_blocking=True)
    ...     total = (ones + ones).sum().item()
    >>> total, device.waits.total()
    (4.0, 1)
    """

    waits: Counter[str]
    """How often the host waited, by the line of our code in which it waited."""
    sent: int
    """How many tensors were copied to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.sent = Counter(), 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and torch would import its compiler to skip this."""
        return False

    def __enter__(self) -> "PretendedDevice":
        # Without this, torch.tensor(..., device=...) would look for a device with kernels.
        torch._C._set_only_lift_cpu_tensors(True)
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        torch._C._set_only_lift_cpu_tensors(False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, far = dict(kwargs or {}), Far in types
        target = kwargs.pop("device", None)
        ends_far = far if target is None else torch.device(target).type == DEVICE.type
        if target is not None:
            kwargs["device"] = "cpu"
        if not far and not ends_far:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name == "copy_":
            ends_far = isinstance(args[0], Far)
        if ends_far and name not in COPIES:
            _check(name, args, _leaves((*args, *kwargs.values())))
        self._note(name, args, kwargs, ends_far)
        own: dict[int, Far] = {}

        def near(value: Any) -> Any:
            if not isinstance(value, Far):
                return value
            own[id(value.held)] = value
            return value.held

        named = {key: _each(near, value) for key, value in kwargs.items()}
        made = func(*_each(near, args), **named)
        if not ends_far:
            return made.clone() if name == "_to_copy" and far else made

        # An operation in place returns the tensor object to which it has written.
        def back(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return own[id(value)] if id(value) in own else Far(value)

        return _each(back, made)

    def _note(self, name: str, args: Sequence[Any], kwargs: Any, ends_far: bool) -> None:
        """Counts the operation if the host waits for it."""
        waits = name in READS
        if name in COPIES:
            at_once = kwargs.get("non_blocking", name == "copy_" and args[2:] == (True,))
            starts_far = isinstance(args[1] if name == "copy_" else args[0], Far)
            assert not (at_once and starts_far and not ends_far), "read before it has arrived"
            waits = starts_far != ends_far and not at_once
            self.sent += ends_far and not starts_far
        if name in INDEXES:
            one = len(args) > 2 and args[2].numel() == 1
            for index in (index for index in args[1] if index is not None):
                # The host has to know a mask's positions, except to fill in a single number.
                waits |= not isinstance(index, Far) or (index.dtype == torch.bool and not one)
        if waits:
            self.waits[f"{_place()} [{name}]"] += 1


def _leaves(values: Iterable[Any]) -> list[Any]:
    """The arguments of an operation, with lists flattened."""
    leaves: list[Any] = []
    for value in values:
        leaves += value if isinstance(value, list | tuple) else (value,)
    return leaves


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """Applies a function to a value, or to each value of a list; torch's pytrees are far slower."""
    if isinstance(value, list | tuple):
        return type(value)([_each(change, one) for one in value])
    return change(value)


def _place() -> str:
    """The innermost line of `shared` on the stack; if there is none, the operation's own line."""
    innermost = sys._getframe(3)
    frame: FrameType | None = innermost
    while frame is not None and "/rampart_fl/shared/" not in frame.f_code.co_filename:
        frame = frame.f_back
    at = frame or innermost
    file, number = at.f_code.co_filename, at.f_lineno
    return f"{file}:{number} {linecache.getline(file, number).strip()}"


def _check(name: str, args: Sequence[Any], leaves: Sequence[Any]) -> None:
    """Refuses operations that a device cannot do with tensors on the host."""
    positions = args[1] if name in INDEXES else []
    for leaf in leaves:
        if isinstance(leaf, torch.Generator):
            raise RuntimeError(f"{name} on {NAME} draws from a generator of the CPU")
        near = isinstance(leaf, Tensor) and not isinstance(leaf, Far) and leaf.ndim > 0
        if near and not any(leaf is position for position in positions):
            raise RuntimeError(f"{name}: tensors on {NAME} and on the CPU")


def far(tensor: Tensor) -> Tensor:
    """A copy of a tensor, on the fake device."""
    return Far(tensor.detach().clone())


def near(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, which must be on the fake device."""
    assert isinstance(tensor, Far)
    return tensor.held
