"""Compares clients' answers to challenges with their answers to decoys.

Legend: J decoys, A averages of earlier uploads, K numbers of a sketch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

DEPENDENT = 1e-5
"""Directions with singular values up to this number are left out of the span of earlier uploads.
If the averages of earlier uploads are nearly equal, such directions consist of rounding errors."""


@dataclass(frozen=True)
class Answer:
    """An upload's answer to its challenge δ_0, compared with its answers to decoys δ_1, ..., δ_J.

    A challenge and its decoys are drawn in the same way, but the client receives only the
    challenge. The answers are a_j = -<r, δ_j> / |δ_j|, where r is the part of the upload that is
    orthogonal to all averages of the client's earlier uploads.

    Args:
        correlation: a_0 / |r|, which is positive if the upload undoes the challenge.
        strength: a_0 / |δ_0|, which is 1 if the upload undoes the whole challenge.
        rank: 1 plus the number of decoys j whose answer a_j is at most a_0. If the upload does not
            depend on δ_0, all answers are exchangeable, so P(`rank` <= k) <= k / (1 + J) for any k.
        count: number of answers that are ranked, 1 + J.
    """

    correlation: float
    strength: float
    rank: int
    count: int

    @staticmethod
    def of(upload_K: Tensor, earlier_AK: Tensor, asked_JK: Tensor) -> "Answer":
        """An upload's answer to a challenge, compared with its answers to decoys.

        Args:
            upload_K: sketch of the upload.
            earlier_AK: averages of the sketches of the client's earlier uploads.
            asked_JK: tensor (1 + J, K) with the challenge in the first row, then the decoys.

        >>> earlier, asked = torch.tensor([[0.0, 3.0]]), torch.tensor([[2.0, 0.0], [-1.0, 1.0]])
        >>> Answer.of(torch.tensor([-1.0, 7.0]), earlier, asked)
        Answer(correlation=1.0, strength=0.5, rank=2, count=2)
        """
        new_K = upload_K.double() - _along(upload_K.double(), earlier_AK.double())
        directions_JK = torch.nn.functional.normalize(asked_JK.double(), dim=1)
        answers_J = -(directions_JK @ new_K)
        own = float(answers_J[0])
        return Answer(
            correlation=own / max(float(new_K.norm()), 1e-300),
            strength=own / max(float(asked_JK[0].norm()), 1e-300),
            rank=1 + int((answers_J[1:] <= own).sum()),
            count=len(asked_JK),
        )

    @property
    def chance(self) -> float:
        """Upper bound on the probability of at most this rank if uploads ignore the challenge."""
        return self.rank / self.count

    @property
    def height(self) -> float:
        """Share of all ranks that are at least as high as this rank."""
        return (1 + self.count - self.rank) / self.count


def _along(upload_K: Tensor, earlier_AK: Tensor) -> Tensor:
    """The projection of an upload onto the span of the earlier uploads."""
    _, sizes_A, basis_AK = torch.linalg.svd(
        torch.nn.functional.normalize(earlier_AK, dim=1), full_matrices=False
    )
    basis_AK = basis_AK[sizes_A > DEPENDENT]
    along_K: Tensor = (basis_AK @ upload_K) @ basis_AK
    return along_K
