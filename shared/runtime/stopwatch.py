"""Seconds by step, for records."""

import time
from collections.abc import Callable


class Stopwatch:
    """Books the time since the last step, or since it was made, on the step that has ended.

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
        """A step has ended."""
        now = self._clock()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now
