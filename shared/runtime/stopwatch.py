"""Measures the duration of each step of a round, in seconds, for the round's record."""

import time
from collections.abc import Callable


class Stopwatch:
    """Adds up the seconds of each step; each call ends one step and starts the next.

    The first step starts when the stopwatch is created.

    >>> now = iter([1.0, 3.0, 4.0, 9.0])
    >>> watch = Stopwatch(lambda: next(now))
    >>> for step in ("load", "rule", "load"):
    ...     watch(step)
    >>> watch.seconds
    {'load': 7.0, 'rule': 1.0}
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last = clock()
        self.seconds: dict[str, float] = {}

    def __call__(self, step: str) -> None:
        """Ends a step, and adds its seconds to those of earlier steps with the same name."""
        now = self._clock()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now
