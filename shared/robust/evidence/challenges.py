"""Challenges: random changes to a client's starting model, which honest training partly undoes.

Legend: M rows of the pool, L challenged clients, P other senders of the same upload, B blocks of
coordinates, J decoys, K numbers of a sketch, D coordinates, C coordinates of a chunk.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import ClassVar

import torch
from torch import Tensor

from rampart_fl.shared.assignment import GLOBAL
from rampart_fl.shared.robust.base import Context, Detector, Rows, State
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.models import ModelBlock, Models, aligned_chunks
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.robust.sketch import sketch
from rampart_fl.shared.runtime.device import to_device

LEAST = 3
"""Smallest number of rows from which challenges are drawn."""
EQUAL = 1e-5
"""All rows count as equal if a random combination of their differences has a small norm: at most
this multiple of the rows' median norm. Challenges are differences between rows, so equal rows yield
no challenges."""
PREFIX = "challenge:"
"""Prefix of the names of challenged models."""


@dataclass(frozen=True, eq=False)
class ChallengedModels(Models):
    """One model `base + mix @ rows` per base model; each block of coordinates has its own `mix`."""

    names: tuple[str, ...]
    base: Models
    rows: Rows
    mix_LBM: Tensor

    @property
    def like(self) -> Tensor:
        return self.base.like

    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        mix_LBM = to_device(self.mix_LBM, self.rows.device, self.rows.block_ND.dtype)
        ends = _own_blocks(self.rows, mix_LBM.shape[1])
        for start, stop, (base_LC, chunk_MC) in aligned_chunks(
            self.base.chunks(), self.rows.chunks()
        ):
            chunk_LC = base_LC.clone()
            for block, (first, last) in enumerate(ends):
                own = slice(max(first, start) - start, max(min(last, stop), start) - start)
                chunk_LC[:, own] += mix_LBM[:, block] @ chunk_MC[:, own]
            yield start, stop, chunk_LC

    def pick(self, names: Sequence[str]) -> "ChallengedModels":
        places = self._places(names)
        base = self.base.pick([self.base.names[place] for place in places])
        return replace(self, names=tuple(names), base=base, mix_LBM=self.mix_LBM[places])


@dataclass(frozen=True, eq=False)
class ConcatenatedModels(Models):
    """One collection that consists of several collections of models, in the given order."""

    names: tuple[str, ...]
    parts: tuple[Models, ...]

    @staticmethod
    def of(*parts: Models) -> "ConcatenatedModels":
        """One collection of all models in `parts`, in the order of `parts`."""
        return ConcatenatedModels(tuple(name for part in parts for name in part.names), parts)

    @property
    def like(self) -> Tensor:
        return self.parts[0].like

    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        for start, stop, chunks in aligned_chunks(*(part.chunks() for part in self.parts)):
            yield start, stop, torch.cat(chunks)

    def pick(self, names: Sequence[str]) -> "ConcatenatedModels":
        runs: list[tuple[Models, list[str]]] = []
        for name in names:
            part = next(part for part in self.parts if name in part.names)
            if runs and runs[-1][0] is part:
                runs[-1][1].append(name)
            else:
                runs.append((part, [name]))
        return ConcatenatedModels.of(*(part.pick(run) for part, run in runs))


class Challenger(Detector):
    """A detector that changes the models from which some clients start their next round.

    A client has at most one challenge at a time. Some detectors need their own challenges (`own`),
    so these detectors draw their challenges first. A detector with `own = False` can also use
    challenges that another detector has drawn.
    """

    own: ClassVar[bool] = True
    """Whether the detector can use only challenges that it has drawn itself."""

    @abstractmethod
    def challenge(
        self,
        rows: Rows,
        customization: Customization,
        global_D: Tensor,
        state: State,
        context: Context,
    ) -> tuple[Customization, State]:
        """The customization with the models of the challenged clients, and the next state.

        Args:
            rows: the rows of the accepted clients.
            customization: the models of the next round; they may contain other detectors'
                challenges.
            global_D: the next global model.
            state: the state after this round's verdicts, without clients that were barred.
            context: the round and the seed.
        """


def blocks(dim: int, count: int) -> list[tuple[int, int]]:
    """Splits `dim` coordinates into `count` blocks of about equal size; returns the blocks' bounds.

    >>> blocks(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    ends = [dim * place // count for place in range(count + 1)]
    return list(pairwise(ends))


def _own_blocks(rows: Rows, count: int) -> list[tuple[int, int]]:
    """Each block's bounds within `rows`, relative to the first coordinate that `rows` holds."""
    place = rows.place
    return [
        (
            min(max(first, place.start), place.stop) - place.start,
            min(max(last, place.start), place.stop) - place.start,
        )
        for first, last in blocks(place.dim, count)
    ]


def sketches(rows: Rows, count: int, size: int, seed: int) -> Tensor:
    """Sketches (B, M, K) of the rows' blocks; the sum over all blocks gives the rows' sketches."""
    sketched_BMK = torch.empty(count, len(rows), size)
    for place in range(len(rows)):
        row_D = rows.row(place)
        for block, ends in enumerate(_own_blocks(rows, count)):
            sketched_BMK[block, place] = sketch(row_D, size, seed, rows.place, ends)
    return sketched_BMK


def draw(sketched_BMK: Tensor, length: float, count: int, draws: torch.Generator) -> Tensor:
    """Weights (count, B, M) of independent random changes, each with a norm of about `length`.

    Rows with a norm above the median norm are first scaled to the median norm; zero rows do not
    count towards this median. Let x_i be block b of the coordinates of the scaled row i, and x̄ the
    mean of all x_i. In block b, a change is sum_i c_bi (x_i - x̄) with normally distributed random
    numbers c_bi. The changes consist of differences between clients' rows, because training
    reverses such differences most strongly. If the rows are equal, the changes are zero.

    Args:
        sketched_BMK: sketches of the rows' blocks.
        length: norm of each change.
        count: number of changes.
        draws: generator of the random numbers.
    """
    sketched_BMK = sketched_BMK.double()
    lengths_M = sketched_BMK.sum(dim=0).norm(dim=1)
    median = lengths_M[lengths_M > 0].median() if bool(lengths_M.any()) else lengths_M.new_zeros(())
    clips_M = (median / lengths_M.clamp(min=1e-300)).clamp(max=1)
    shape = (count, *sketched_BMK.shape[:2])
    weights_LBM = torch.randn(shape, generator=draws, dtype=torch.float64)
    weights_LBM = (weights_LBM - weights_LBM.mean(dim=2, keepdim=True)) * clips_M
    reached_L = changes(weights_LBM, sketched_BMK).norm(dim=1)
    scales_L = torch.where(reached_L > EQUAL * median, length / reached_L.clamp(min=1e-300), 0.0)
    scaled_LBM: Tensor = weights_LBM * scales_L[:, None, None]
    return scaled_LBM


def draw_with_decoys(
    sketched_BMK: Tensor,
    length: float,
    decoys: int,
    client: str,
    draws: Callable[..., torch.Generator],
) -> Tensor:
    """Weights (1 + decoys, B, M): one client's challenge in the first row, then its decoys.

    A client may be able to compute its challenge. The decoys have a generator of their own, so that
    the client cannot compute the decoys from the challenge.

    Args:
        sketched_BMK, length: as for `draw`.
        decoys: number of decoys.
        client: the client's id.
        draws: function that returns the generator with a given name.
    """
    challenge_LBM = draw(sketched_BMK, length, 1, draws("challenge", client))
    return torch.cat([challenge_LBM, draw(sketched_BMK, length, decoys, draws("decoys", client))])


def changes(weights_LBM: Tensor, sketched_BMK: Tensor) -> Tensor:
    """Sketches (L, K) of changes; each change is a weighted sum of the rows' blocks."""
    return torch.einsum("lbm,bmk->lk", weights_LBM, sketched_BMK.double())


def challenged(
    customization: Customization, global_D: Tensor, rows: Rows, by_client: Mapping[str, Tensor]
) -> Customization:
    """The given customization, but with changed starting models for some clients.

    Some customizers probe a new client before they give the client its own model. Until then, a
    challenged client starts from the global model plus the client's change.

    Args:
        customization: which client gets which model.
        global_D: the next global model.
        rows: the pool whose rows the changes combine.
        by_client: for each challenged client, keyed by its id, the weights (B, M) of the rows in
            the client's change (see `draw`).
    """
    if not by_client:
        return customization
    known: Models = ModelBlock((GLOBAL,), global_D.unsqueeze(0))
    if customization.models is not None:
        known = ConcatenatedModels.of(known, customization.models)
    firsts = [_own(customization, client) for client in by_client]
    names = {client: PREFIX + client for client in by_client}
    shifted = ChallengedModels(
        tuple(names.values()), known.pick(firsts), rows, torch.stack(list(by_client.values()))
    )
    models = customization.models
    return replace(
        customization,
        models=shifted if models is None else ConcatenatedModels.of(models, shifted),
        challenged={**customization.challenged, **names},
    )


def awaiting(customization: Customization, clients: Collection[str]) -> Customization:
    """The given customization with more clients whose next uploads are awaited."""
    return replace(customization, awaited=customization.awaited.union(clients))


def challenged_model(customization: Customization, client: str) -> Tensor:
    """The model (D,) from which a challenged client starts."""
    assert customization.models is not None, client
    return customization.models.model(customization.challenged[client])


@dataclass(frozen=True, eq=False)
class OwnModels:
    """Computes sketches of the models that clients would get if they were not challenged.

    If a client has a model of its own, all rows are read once to compute the sketch of this model.

    Args:
        customization: which client gets which model.
        global_D: the global model.
        size: K, the size of sketches.
        seed: the seed of the sketches.
        place: the coordinates that this rank holds.
    """

    customization: Customization
    global_D: Tensor
    size: int
    seed: int
    place: Part

    @cached_property
    def _global_K(self) -> Tensor:
        return sketch(self.global_D, self.size, self.seed, self.place).double()

    def sketch(self, client: str) -> Tensor:
        """The sketch (K,) of the model that a client would get if it were not challenged."""
        own, known = _own(self.customization, client), self.customization.models
        if own == GLOBAL:
            return self._global_K
        assert known is not None, client
        return sketch(known.model(own), self.size, self.seed, self.place).double()


def _own(customization: Customization, client: str) -> str:
    """The name of the model that a client gets without a challenge."""
    return (customization.names_for(client) or (GLOBAL,))[0]


def answer(new_K: Tensor, asked_JK: Tensor, others_PK: Tensor | None = None) -> float | None:
    """An upload's answer to its challenge, in standard deviations of the answers to decoys.

    The result is z = (a_0 - mean a_j) / sd a_j with a_j = -<r, δ_j>. Here, r is the part of the
    upload that the client's earlier uploads do not predict (`relays.new_part`), and δ_0 is the
    client's own challenge. For j > 0, δ_j is a decoy, which was drawn like δ_0 but sent to nobody.
    The mean and the standard deviation of a_j are taken over the decoys (j > 0). If an upload does
    not depend on its own challenge, a_0 is exchangeable with the answers to the decoys.

    Several clients with different challenges may send the same upload. If such an upload answers
    all of their challenges equally strongly, the answers do not prove that any of these clients
    trained. If other clients sent the same upload, their challenges therefore count, too: if the
    mean answer to these challenges is larger than the mean of a_j, it replaces the mean of a_j.

    Args:
        new_K: sketch of r, the new part of the client's upload.
        asked_JK: tensor (1 + J, K) with the challenge in the first row, then the decoys.
        others_PK: challenges of other clients that sent the same upload, if there are any.
    Returns:
        z; 0 if the upload has no new part; None if the challenge and the decoys are zero, or if the
        upload is not finite.

    >>> asked = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> round(answer(torch.tensor([-1.0, 0.0]), asked), 3)
    2.449
    """
    answers_J = -(asked_JK.double() @ new_K.double())
    spread = float(answers_J[1:].std())
    if not isfinite(spread):
        return None
    if not spread:
        return 0.0 if bool(asked_JK.any()) else None
    usual = float(answers_J[1:].mean())
    if others_PK is not None and len(others_PK):
        usual = max(usual, float(-(others_PK.double() @ new_K.double()).mean()))
    return (float(answers_J[0]) - usual) / spread
