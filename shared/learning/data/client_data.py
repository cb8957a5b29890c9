"""A client's data: its share of a data set, or a file that the client provides.

Legend: n training samples, t test samples.
"""

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data import checked_samples
from rampart_fl.shared.learning.data.arrays import PARTS, labels, read
from rampart_fl.shared.learning.data.datasets import Dataset, Samples, datasets
from rampart_fl.shared.learning.data.partitions import partitions
from rampart_fl.shared.seeding import generator


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's samples, for training and local testing.

    Args:
        x_train: float32 (n, *shape).
        y_train: long (n,).
        x_test: float32 (t, *shape).
        y_test: long (t,).
        classes: number of classes of the task, including classes that the client does not hold.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int


def client_data(data: Data, slot: int, seed: int) -> ClientData:
    """The data of the client in one slot, 0 <= slot < data.clients.

    Each process reads and partitions the data set once. The partition depends only on the seed. A
    client's split into training and test samples depends only on the seed and the slot. All
    processes therefore get the same data.

    >>> own = client_data(Data(dataset="digits", clients=20), slot=3, seed=1)
    >>> len(own.y_train), len(own.y_test)
    (68, 22)
    """
    if not 0 <= slot < data.clients:
        raise ConfigurationError(f"there is no slot {slot}: the slots are 0 to {data.clients - 1}")
    samples, parts = partition_data(data, seed)
    if len(parts[slot]) < 2:
        raise ConfigurationError(
            f"client {slot} got {len(parts[slot])} samples; it needs at least two"
        )
    train, test = split(samples, parts[slot], data.test_fraction, slot, seed)
    if not len(train) or not len(test):
        raise ConfigurationError(
            f"client {slot} got {len(train)} samples for training and {len(test)} for testing; "
            "it needs at least one of each"
        )
    return ClientData(
        samples.take(train), samples.y[train], samples.take(test), samples.y[test], samples.classes
    )


def split(
    samples: Samples, part: Tensor, test_fraction: float, slot: int, seed: int
) -> tuple[Tensor, Tensor]:
    """The positions (int64, sorted) of a client's training samples and of its test samples."""
    if samples.held_out is not None:
        return part[~samples.held_out[part]], part[samples.held_out[part]]
    order = part[torch.randperm(len(part), generator=generator(seed, "test split", slot))]
    held_out = min(max(round(len(part) * test_fraction), 1), len(part) - 1)
    return order[held_out:].sort().values, order[:held_out].sort().values


def partition_data(data: Data, seed: int) -> tuple[Samples, tuple[Tensor, ...]]:
    """The data set, and the positions (int64, sorted) of each slot's samples.

    First, `data.reserved` samples are drawn and withheld from all clients. The partition divides
    the remaining samples. If the partition gives a client more than `data.samples` samples, the
    client keeps a random subset of this size.
    """
    samples, parts = _partition(data.model_dump_json(exclude={"test_fraction"}), seed)
    if samples.standardized:
        samples = _standardized(data.model_dump_json(), seed)
    return samples, parts


@lru_cache(maxsize=4)
def _standardized(table: str, seed: int) -> Samples:
    """The data set, with features standardized over the training samples of all clients."""
    data = Data.model_validate_json(table)
    samples, parts = _partition(data.model_dump_json(exclude={"test_fraction"}), seed)
    own = [
        split(samples, part, data.test_fraction, slot, seed)[0]
        for slot, part in enumerate(parts)
        if len(part) > 1
    ]
    x = samples.take()
    train = x[torch.cat(own)]
    spread = train.std(0)
    x = (x - train.mean(0)) / torch.where(spread > 0, spread, torch.ones_like(spread))
    return replace(samples, x=x, scale=1.0)


@lru_cache(maxsize=4)
def _partition(table: str, seed: int) -> tuple[Samples, tuple[Tensor, ...]]:
    data = Data.model_validate_json(table)
    drawn = checked_samples.draw(datasets.parse(data.dataset), seed)
    samples = _samples(json.dumps(data.dataset)) if drawn is None else drawn
    n = len(samples.y)
    if data.reserved >= n:
        raise ConfigurationError(f"{data.reserved} of {n} samples are reserved, so none are left")
    order = torch.randperm(n, generator=generator(seed, "reserved"))
    rest = order[data.reserved :].sort().values
    shares = partitions.parse(data.partition).divide(
        samples.y[rest],
        data.clients,
        generator(seed, "partition"),
        None if samples.groups is None else samples.groups[rest],
    )
    parts = []
    for slot, share in enumerate(shares):
        if data.samples is not None:
            draws = generator(seed, "sample cap", slot)
            share = share[torch.randperm(len(share), generator=draws)[: data.samples]]
        parts.append(rest[share.sort().values])
    return samples, tuple(parts)


@lru_cache(maxsize=2)
def _samples(dataset: str) -> Samples:
    return checked_samples.load(datasets.parse(json.loads(dataset)))


def poisoned(
    data: ClientData, attack: DataAttack, seed: int, client: str, attacker: int
) -> ClientData:
    """An attacker's data: training data changed by the data attack, and unchanged test data.

    Args:
        data: the attacker's data before the attack.
        attack: the data attack.
        seed: the experiment's seed.
        client: the attacker's client id, from which the attack's random numbers are derived.
        attacker: the attacker's position among the experiment's attackers.
    Raises:
        ConfigurationError: the samples or labels that the attack returned are not valid; the
            message names the attack.
    """
    draws = generator(seed, "data attack", client)
    x, y = checked_samples.poison(attack, data.x_train, data.y_train, data.classes, draws, attacker)
    return replace(data, x_train=x, y_train=y)


def client_data_from_file(path: str | Path, dataset: Dataset) -> ClientData:
    """A client's own data from an .npz file with x_train, y_train, x_test and y_test.

    Args:
        path: the client's file; its arrays have the same format as the arrays of the data set's
            file.
        dataset: the data set on which the federation trains.
    Raises:
        ConfigurationError: the file or an array is missing, a shape does not fit, a label is
            outside 0..classes-1, or a number is not finite.
    """
    arrays = read(path)
    with dataset.own_errors():
        x_train, x_test = (
            dataset.prepared(arrays[f"x_{part}"], f"{path}: x_{part}") for part in PARTS
        )
    y_train, y_test = (
        labels(arrays[f"y_{part}"], len(x), dataset.classes, f"{path}: y_{part}")
        for part, x in zip(PARTS, (x_train, x_test), strict=True)
    )
    return ClientData(x_train, y_train, x_test, y_test, dataset.classes)
