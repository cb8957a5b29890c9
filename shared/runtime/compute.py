"""Runs functions on another thread, and awaits their results."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Compute(Protocol):
    """Runs a function on another thread, and returns the function's result."""

    def __call__(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]:
        """Runs `function` with these arguments."""


def compute_on(thread: Executor | None) -> Compute:
    """Returns a `Compute` for `thread`; None stands for the event loop's default executor."""

    async def compute(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, partial(function, *args, **kwargs))

    return compute
