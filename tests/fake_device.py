"""A pretended device: its tensors name this device and keep their numbers on the CPU.

Where no GPU is at hand it shows what one would: an operation on tensors of two devices fails, and
so does reading numbers past the device; and whenever the host would wait for the device, that is
noted. Torch has the type of device, `lazy`, in every build, and nothing that computes on it.
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
"""Operations that give the host a number, or a tensor whose size depends on the numbers."""
COPIES = {"_to_copy", "copy_"}
INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that take positions from the host as well, and wait until these are up."""


class Far(Tensor):
    """A tensor on the pretended device."""

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
        """The numbers, from a copy: torch lists those of no subclass."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} runs where its device is not pretended")


class PretendedDevice(TorchDispatchMode):
    """While entered, tensors can be made on `NAME`, moved there and back, and computed with.

    >>> with PretendedDevice() as device:
    ...     ones = torch.ones(2).to(NAME, non_blocking=True)
    ...     total = (ones + ones).sum().item()
    >>> total, device.waits.total()
    (4.0, 1)
    """

    waits: Counter[str]
    """How often the host waited, by the line of this project that it waited in."""
    sent: int
    """How many tensors went up."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.sent = Counter(), 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled here, and torch would import its compiler to skip this."""
        return False

    def __enter__(self) -> "PretendedDevice":
        # Or torch.tensor(..., device=...) would look for one that computes.
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

        # What an operation has written to stays the tensor that it was.
        def back(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return own[id(value)] if id(value) in own else Far(value)

        return _each(back, made)

    def _note(self, name: str, args: Sequence[Any], kwargs: Any, ends_far: bool) -> None:
        """Counts what the host waits for."""
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
                # A mask's positions have to be known, but for filling in one number.
                waits |= not isinstance(index, Far) or (index.dtype == torch.bool and not one)
        if waits:
            self.waits[f"{_place()} [{name}]"] += 1


def _leaves(values: Iterable[Any]) -> list[Any]:
    """Arguments of an operation, with those of its lists."""
    leaves: list[Any] = []
    for value in values:
        leaves += value if isinstance(value, list | tuple) else (value,)
    return leaves


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """A changed value, or each value of a list changed; torch's pytrees take far longer."""
    if isinstance(value, list | tuple):
        return type(value)([_each(change, one) for one in value])
    return change(value)


def _place() -> str:
    """The innermost line of `shared` that is being run; without one, that of the operation."""
    innermost = sys._getframe(3)
    frame: FrameType | None = innermost
    while frame is not None and "/rampart_fl/shared/" not in frame.f_code.co_filename:
        frame = frame.f_back
    at = frame or innermost
    file, number = at.f_code.co_filename, at.f_lineno
    return f"{file}:{number} {linecache.getline(file, number).strip()}"


def _check(name: str, args: Sequence[Any], leaves: Sequence[Any]) -> None:
    """Refuses operations that a device cannot do with tensors of the host."""
    positions = args[1] if name in INDEXES else []
    for leaf in leaves:
        if isinstance(leaf, torch.Generator):
            raise RuntimeError(f"{name} on {NAME} draws from a generator of the CPU")
        near = isinstance(leaf, Tensor) and not isinstance(leaf, Far) and leaf.ndim > 0
        if near and not any(leaf is position for position in positions):
            raise RuntimeError(f"{name}: tensors on {NAME} and on the CPU")


def far(tensor: Tensor) -> Tensor:
    """A copy of a tensor, on the pretended device."""
    return Far(tensor.detach().clone())


def near(tensor: Tensor) -> Tensor:
    """The numbers of a tensor that has to be on the pretended device."""
    assert isinstance(tensor, Far)
    return tensor.held
