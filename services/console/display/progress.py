"""Shows the progress of long work on standard error, with an estimate of the time left."""

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.progress import Progress as Bar
from rich.progress import TextColumn

from rampart_fl.services.console.display.formats import duration
from rampart_fl.services.console.display.terminal import terminal

PERIOD = 600.0
"""The time left is estimated from the pace of the last `PERIOD` seconds."""
QUIET = 5.0
"""Minimum number of seconds between two lines if there is no terminal. If less than `QUIET` seconds
are left, the time left is not shown."""


class Pace:
    """Estimates the time left for work that consists of steps.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar = Bar(disable=True, get_time=clock, speed_estimate_period=PERIOD)
        self._task = self._bar.add_task("")

    def time_left(self, done: float, total: float) -> str:
        """The estimated time left after `done` of `total` steps; "" while there is no estimate."""
        self._bar.update(self._task, completed=done, total=total)
        seconds = self._bar.tasks[self._task].time_remaining or 0.0
        return "" if seconds < QUIET or done >= total else f"{duration(seconds)} left"


class Progress:
    """Shows progress and the time left: on a terminal as a bar, and otherwise in occasional lines.

    Args:
        title: what is being done.
        total: the number of steps, if it is known before the first step.
        every: seconds between lines if there is no terminal.
        clock: returns seconds.
    """

    def __init__(
        self,
        title: str,
        total: float | None = None,
        every: float = QUIET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        console = terminal(stderr=True)
        self._title, self._total, self._every, self._clock = title, total, every, clock
        self._silent = console.is_terminal
        _, *columns = Bar.get_default_columns()
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            *columns,
            console=console,
            disable=not self._silent,
            speed_estimate_period=PERIOD,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total)
        self._pace = Pace(clock)
        self._last_output = clock()

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(
        self, done: float, total: float | None = None, label: str = "", line: str = ""
    ) -> None:
        """Updates the bar, or prints a line about the progress.

        Args:
            done: the number of steps done so far.
            total: the number of steps, if it has changed.
            label: the most recent step, shown next to the bar; by default, the title.
            line: the most recent step, printed if there is no terminal; by default, the title.
        """
        self._total = total = self._total if total is None else total
        self._bar.update(self._task, completed=done, total=total, description=label or self._title)
        left = "" if total is None else self._pace.time_left(done, total)
        if self._silent or self._clock() - self._last_output < self._every:
            return
        self._last_output = self._clock()
        share = f"{done:g}" if total is None else f"{done:g}/{total:g}"
        sys.stderr.write(f"{share} {line or self._title}{f', {left}' if left else ''}\n")
        sys.stderr.flush()
