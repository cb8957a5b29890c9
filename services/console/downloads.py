"""Fetches the data sets that an experiment needs, with a progress bar for each download."""

import time
from collections.abc import Callable
from pathlib import Path

from rampart_fl.services.console.progress import Progress
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.datasets import Dataset, datasets


def fetch(member: Dataset, clock: Callable[[], float] = time.monotonic) -> Path | None:
    """Fetches a data set, and returns the path of its file, if it has one.

    Args:
        member: the data set.
        clock: returns seconds.
    Raises:
        ConfigurationError: the data set is not available; the message says what to do.
    """
    with Progress(f"samples of {member.name} downloaded", clock=clock) as progress:
        return member.fetch(progress.show)


def fetch_all(experiment: Experiment) -> None:
    """Fetches the data sets of an experiment's clients and server.

    Raises:
        ConfigurationError: a data set is not available; the message says what to do.
    """
    server = experiment.server
    for table in (experiment.data, server.root, server.public, server.test):
        if table is not None:
            fetch(datasets.parse(table.dataset))
