"""The data and batches of many clients as padded tensors, so that all clients train at once.

Legend: K clients, N training samples and T test samples (padded to the largest client),
S steps in a round (padded likewise), B samples in a batch, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.rounding import ceil_div
from rampart_fl.shared.runtime.device import to_device
from rampart_fl.shared.seeding import generator


@dataclass(frozen=True, eq=False)
class Cohort:
    """K clients' data, padded to the client with the most samples; row k belongs to client k."""

    x_train_KN: Tensor
    y_train_KN: Tensor
    train_K: tuple[int, ...]
    x_test_KT: Tensor
    y_test_KT: Tensor
    test_K: tuple[int, ...]
    classes: int

    @staticmethod
    def of(
        clients: Sequence[ClientData],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "Cohort":
        """Stacks clients' data."""

        def pad(parts: list[Tensor]) -> Tensor:
            return pad_sequence(parts, batch_first=True).to(device)

        return Cohort(
            pad([client.x_train.to(dtype) for client in clients]),
            pad([client.y_train for client in clients]),
            tuple(len(client.y_train) for client in clients),
            pad([client.x_test.to(dtype) for client in clients]),
            pad([client.y_test for client in clients]),
            tuple(len(client.y_test) for client in clients),
            clients[0].classes,
        )

    def pick(self, positions: Sequence[int]) -> "Cohort":
        """The data of the clients with these indices, in the order of `positions`."""
        if list(positions) == list(range(len(self.train_K))):
            return self
        at = to_device(positions, self.y_train_KN.device, torch.long)
        return Cohort(
            self.x_train_KN[at],
            self.y_train_KN[at],
            tuple(self.train_K[i] for i in positions),
            self.x_test_KT[at],
            self.y_test_KT[at],
            tuple(self.test_K[i] for i in positions),
            self.classes,
        )

    def part(self, some: slice) -> "Cohort":
        """Views of the data of the clients whose indices are in the slice `some`."""
        if range(len(self.train_K))[some] == range(len(self.train_K)):
            return self
        return Cohort(
            self.x_train_KN[some],
            self.y_train_KN[some],
            self.train_K[some],
            self.x_test_KT[some],
            self.y_test_KT[some],
            self.test_K[some],
            self.classes,
        )

    def like(self, samples: int) -> Tensor:
        """Arbitrary values in the shape of a batch with `samples` samples of each client."""
        return self.x_train_KN[:, :1].expand(-1, samples, *self.x_train_KN.shape[2:])

    @cached_property
    def counts_KC(self) -> Tensor:
        """Number of training samples (K, C) that each client has in each class."""
        y_KN, device = self.y_train_KN, self.y_train_KN.device
        sizes_K = to_device(self.train_K, device)
        inside_KN = torch.arange(y_KN.shape[1], device=device) < sizes_K[:, None]
        # Count by comparison. The shape of a comparison's output does not depend on the values, so
        # the host does not have to wait for the device.
        of_class_KNC = y_KN[..., None] == torch.arange(self.classes, device=device)
        return (of_class_KNC & inside_KN[..., None]).sum(1)


@dataclass(frozen=True)
class StepRandomness:
    """Source of a step's random numbers, which depend on seed, purpose, client, round and step."""

    seed: int
    names: tuple[str, ...]
    round: int
    step: int
    sizes: tuple[int, ...]
    """Number of samples in each client's batch; 0 for a client that has finished its steps."""
    secret: int | None = None
    """Secret seed; if None, the experiment's seed is used."""

    def generators(self, purpose: str) -> list[torch.Generator]:
        """A new CPU generator for every client."""
        path = (self.round, self.step)
        return [generator(self.seed, purpose, name, *path) for name in self.names]

    def secretly(self, purpose: str) -> list[torch.Generator]:
        """Like `generators`, but with the secret seed if there is one."""
        return replace(self, seed=_either(self.secret, self.seed)).generators(purpose)

    def singly(self, start: int, count: int) -> "StepRandomness":
        """Randomness for the same training step, but with a separate generator for every sample.

        Each client contributes its samples `start` to `start + count - 1`.
        """
        places = range(start, start + count)
        return replace(
            self,
            names=tuple(f"{name}#{a}" for name in self.names for a in places),
            sizes=tuple(int(a < size) for size in self.sizes for a in places),
        )


def _either(secret: int | None, seed: int) -> int:
    return seed if secret is None else secret


@dataclass(frozen=True, eq=False)
class Batches:
    """Which samples every client sees in every step of a round.

    Args:
        index_KSB: positions of samples; 0 for padding.
        weight_KSB: 1 / (size of the batch), or 0 for padding, in float64. Under differential
            privacy, the expected size of the batch replaces its size.
        steps_K: number of steps of each client.
        seed: the experiment's seed.
        names: the clients' ids.
        round: the round's number.
        secret: secret seed for private draws; if None, the experiment's seed is used.
        held: positions of each client's validation samples, which are in no batch.
    """

    index_KSB: Tensor
    weight_KSB: Tensor
    steps_K: tuple[int, ...]
    seed: int
    names: tuple[str, ...]
    round: int
    secret: int | None = None
    held: tuple[Tensor, ...] = ()

    @staticmethod
    def draw(
        sizes: Sequence[int],
        names: Sequence[str],
        training: Training,
        seed: int,
        round_: int,
        secret: int | None = None,
        held_out: float = 0.0,
    ) -> "Batches":
        """Shuffles each client's samples anew in every epoch; an incomplete last batch is kept.

        Under differential privacy, the number of epochs determines only the number of steps. In
        every step, each of a client's n samples is drawn with probability b/n. Here, b is the
        smaller of the batch size and n. Each drawn sample has the weight 1/b. These draws use the
        secret seed if there is one.

        A fraction `held_out` of a client's samples is in no batch; the held-out samples are the
        same in every round. At least one sample of each client remains for training.
        """
        own, held, private = [], [], training.privacy is not None
        for size, name in zip(sizes, names, strict=True):
            draws = generator(_either(secret, seed) if private else seed, "batches", name, round_)
            order = torch.arange(size)
            if held_out:
                order = torch.randperm(size, generator=generator(seed, "validation", name))
            kept = size - min(max(round(held_out * size), 1), size - 1) if held_out else size
            positions_SB, sizes_S1 = (_poisson if private else _shuffled)(kept, training, draws)
            own.append((order[positions_SB] if held_out else positions_SB, sizes_S1))
            held.append(order[kept:].sort().values)
        # `full` is the batch size or the largest client's sample count, whichever is smaller.
        full = min(training.batch_size, max(sizes))
        width = max(full, *(int(sizes_S1.max()) for _, sizes_S1 in own))
        index, weight = [], []
        for size, (positions_SB, sizes_S1) in zip(sizes, own, strict=True):
            inside_SB = torch.arange(width) < sizes_S1
            index_SB = functional.pad(positions_SB, (0, width - positions_SB.shape[1]))
            index.append(index_SB.masked_fill(~inside_SB, 0))
            counts_S1 = min(training.batch_size, size) if private else sizes_S1.double()
            weight.append(inside_SB / counts_S1)
        return Batches(
            pad_sequence(index, batch_first=True),
            pad_sequence(weight, batch_first=True),
            tuple(len(one) for one in index),
            seed,
            tuple(names),
            round_,
            secret,
            tuple(held),
        )

    def part(self, some: slice) -> "Batches":
        """The batches of the clients whose indices are in the slice `some`."""
        return replace(
            self,
            index_KSB=self.index_KSB[some],
            weight_KSB=self.weight_KSB[some],
            steps_K=self.steps_K[some],
            names=self.names[some],
            held=self.held[some],
        )

    def pick(self, positions: Sequence[int]) -> "Batches":
        """The batches of the clients with these indices, in the order of `positions`."""
        return replace(
            self,
            index_KSB=self.index_KSB[list(positions)],
            weight_KSB=self.weight_KSB[list(positions)],
            steps_K=tuple(self.steps_K[k] for k in positions),
            names=tuple(self.names[k] for k in positions),
            held=tuple(self.held[k] for k in positions),
        )

    @property
    def width(self) -> int:
        """The padded batch size B."""
        return self.index_KSB.shape[2]

    def whole(self, step: int) -> bool:
        """Whether every client's batch in this step has B samples, so that no batch is padded."""
        return min(self.sizes_S[step]) == self.width

    def draws(self, step: int) -> StepRandomness:
        """The source of one step's random numbers."""
        return StepRandomness(
            self.seed, self.names, self.round, step, self.sizes_S[step], self.secret
        )

    @cached_property
    def sizes_S(self) -> list[tuple[int, ...]]:
        """The number of samples in each client's batch, for each step."""
        sizes_SK = (self.weight_KSB > 0).sum(2).T
        return [tuple(sizes_K) for sizes_K in sizes_SK.tolist()]

    @cached_property
    def steps(self) -> int:
        """The largest number of steps that any client takes."""
        return max(self.steps_K)


def _shuffled(size: int, training: Training, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """The positions (S, B) of each batch's samples, padded, and the batches' sizes (S, 1)."""
    most = training.batch_size
    steps = ceil_div(size, most)
    orders = [torch.randperm(size, generator=draws) for _ in range(training.epochs)]
    padded = functional.pad(torch.stack(orders), (0, steps * most - size))
    sizes_S = torch.full((training.epochs, steps), most)
    sizes_S[:, -1] = size - (steps - 1) * most
    return padded.view(-1, most), sizes_S.view(-1, 1)


def _poisson(size: int, training: Training, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Like `_shuffled`, but each batch takes each sample with a fixed probability."""
    rate, steps = min(1.0, training.batch_size / size), ceil_div(size, training.batch_size)
    taken_SN = torch.rand(training.epochs * steps, size, generator=draws) < rate
    batches = [taken_N.nonzero().flatten() for taken_N in taken_SN]
    return pad_sequence(batches, batch_first=True), taken_SN.sum(1, keepdim=True)
