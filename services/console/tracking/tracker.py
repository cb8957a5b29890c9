"""The interface of a tracker, which records the start, the rounds and the end of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rampart_fl.shared.errors import RampartError


class TrackerUnavailable(RampartError):
    """The library of a tracker is not installed, or the tracker refuses a request."""

    slug = "no-tracker"
    title = "The tracker cannot be used"


def missing_library(library: str) -> TrackerUnavailable:
    """The error for a library that is not installed."""
    return TrackerUnavailable(
        f"no tracking without {library}; install it with: pip install 'rampart-fl[{library}]'"
    )


class Tracker(Protocol):
    """One run in a tracker. Times are Unix seconds."""

    def begin(self, parameters: Mapping[str, str], facts: Mapping[str, str], at: float) -> None:
        """Begins the run.

        Args:
            parameters: the settings of the experiment, keyed by path, such as "data.clients".
            facts: facts that identify the run, such as digests.
            at: when the run began.
        """

    def round(
        self, number: int, metrics: Mapping[str, float], events: Mapping[str, str], at: float
    ) -> None:
        """Adds a round.

        Args:
            number: the round's number.
            metrics: the round's metrics.
            events: texts about what happened to clients, such as an eviction and its reason, keyed
                by client.
            at: when the round ended.
        """

    def end(
        self, figures: Mapping[str, float], facts: Mapping[str, str], folder: Path, at: float
    ) -> None:
        """Ends the run.

        Args:
            figures: the final metrics.
            facts: facts that are known only at the end, such as the evicted clients.
            folder: files to keep with the run: experiment, records, final models, provenance.
            at: when the run ended.
        """

    def fail(self) -> None:
        """Handles an incomplete copy of a run: marks the run as failed, or removes the copy."""
