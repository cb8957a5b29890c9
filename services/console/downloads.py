"""Fetches the data sets that experiments need, with a progress bar for each of them."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rampart_fl.services.console.display.progress import Progress
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families import plugins
from rampart_fl.shared.learning.data.datasets import Dataset, datasets


def fetch(member: Dataset, clock: Callable[[], float] = time.monotonic) -> Path | None:
    """Fetches a data set; returns the path of the data set's file, or None if it has no file.

    The progress bar counts the rows that are downloaded, or read from the publisher's file.

    Args:
        member: the data set.
        clock: function that returns the time in seconds.
    Raises:
        ConfigurationError: the data set is not available; the message says what to do.
    """
    with member.own_errors(), Progress(f"rows of {member.name}", clock=clock) as progress:
        return member.fetch(progress.show)


def fetch_all(experiments: Iterable[Experiment]) -> None:
    """Fetches the data sets of the clients and the server, each data set once.

    Raises:
        ConfigurationError: a data set is not available; the message says what to do.
    """
    fetched = set()
    for experiment in experiments:
        server = experiment.server
        for table in (experiment.data, server.root, server.public, server.test):
            if table is None:
                continue
            with plugins.record_lookups(experiment.packages):
                member = datasets.parse(table.dataset)
            if member.name not in fetched:
                fetch(member)
            fetched.add(member.name)
