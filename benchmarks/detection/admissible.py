"""Checks whether a combination can be run, and states why not."""

from typing import Any

from benchmarks.detection.combinations import LEAST, SIZED, Combination

_IMPOSSIBLE: dict[tuple[Any, ...], str] = {}
"""A cache of reasons, keyed by all that they depend on except the seed. Without it, each check of a
Dirichlet partition could take seconds."""


def refusal(one: Combination) -> str | None:
    """Why a combination cannot be run; None if it can.

    The check divides the data as the run would. If a partition is impossible with one seed, it
    counts as impossible with every seed.
    """
    from rampart_fl.shared.errors import ConfigurationError

    key = (one.data_set, one.partition, one.clients, one.network, one.samples)
    if key in _IMPOSSIBLE:
        return _IMPOSSIBLE[key]
    if one.samples < LEAST:
        return f"{one.samples} samples per client"
    try:
        sizes = _sizes(one)
    except ConfigurationError as error:
        return _IMPOSSIBLE.setdefault(key, str(error))
    if sizes[0] < LEAST:
        return f"a client with {sizes[0]} samples"
    if one.partition in SIZED and sizes[-1] < 100 * sizes[0]:
        return f"sizes from {sizes[0]} to {sizes[-1]} only"
    return None


def _sizes(one: Combination) -> list[int]:
    """Number of samples of every client, in ascending order; also checks that the model builds."""
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.learning.data.client_data import partition_data
    from rampart_fl.shared.learning.network.vector import initial_model

    experiment = Experiment.from_tables(one.tables())
    initial_model(experiment)
    _, parts = partition_data(experiment.data, one.seed)
    return sorted(len(part) for part in parts)
