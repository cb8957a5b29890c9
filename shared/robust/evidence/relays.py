"""Finds uploads that answer the challenges of other clients; honest uploads never do.

Legend: J decoys, K numbers of a sketch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from rampart_fl.shared.robust.evidence.betting import Bet

BETS = (Bet(0.5, 0.75), Bet(0.5, 0.95))
"""Bets that win if an upload answers other clients' challenges. The first bet expects an answer
that is 0.7 standard deviations away from the answers to decoys; the second bet expects a distance
of 1.6 standard deviations. Each bet is placed twice: once on high answers, and once on low
answers."""
KEPT = 0.8
"""Decay factor of a client's average upload: the weight of the old average when an upload is
added."""


@dataclass(frozen=True)
class Relay:
    """How an upload's answer to other clients' challenges ranks among its answers to their decoys.

    An honest client trains from its own model, so its upload does not depend on the challenges that
    other clients receive in the same round. The answer to these challenges and the answers to their
    decoys are therefore exchangeable, regardless of the client's data. An upload that contains
    other clients' uploads answers their challenges.

    Args:
        above: 1 + the number of decoys whose answer is at least as high as the answer to the
            challenges.
        below: 1 + the number of decoys whose answer is at most as high as the answer to the
            challenges.
        count: number of answers that are compared, 1 + J.
    """

    above: int
    below: int
    count: int

    @staticmethod
    def of(upload_K: Tensor, average_K: Tensor, asked_JK: Tensor) -> "Relay | None":
        """How an upload answers other clients' challenges; None if the upload has no new part.

        The answers are a_j = -<r, δ_j>, where δ_j is row j of `asked_JK`. The vector r is the part
        of the upload that is orthogonal to the client's average upload.

        Args:
            upload_K: sketch of the upload.
            average_K: average of the sketches of the client's earlier uploads.
            asked_JK: tensor (1 + J, K) with the sum of the other clients' challenges in the first
                row; each further row is a sum of their decoys.

        >>> import torch
        >>> asked = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> Relay.of(torch.tensor([-1.0, 3.0]), torch.tensor([0.0, 1.0]), asked)
        Relay(above=1, below=3, count=3)
        """
        answers_J = -(asked_JK.double() @ new_part(upload_K, average_K))
        if not bool(answers_J.isfinite().all()) or not bool(answers_J.any()):
            return None
        return Relay(
            above=int((answers_J >= answers_J[0]).sum()),
            below=int((answers_J <= answers_J[0]).sum()),
            count=len(answers_J),
        )

    def settled(self, wealth: Sequence[float], rounds: int, most: float) -> tuple[float, ...]:
        """The wealth of each bet after one more round, at most `most`.

        Args:
            wealth: the wealth before the round: for each bet in `BETS`, first the wealth won on
                high answers, and then the wealth won on low answers.
            rounds: number of rounds with a bet so far, including this round.
            most: upper limit on the wealth.

        >>> Relay(above=1, below=17, count=17).settled(NOTHING, 1, most=1e9)[0] > 1
        True
        """
        sides = [(bet, rank) for bet in BETS for rank in (self.above, self.below)]
        return tuple(
            min(bet.settled(one, rounds, bet.gain_at(rank, self.count)), most)
            for one, (bet, rank) in zip(wealth, sides, strict=True)
        )


NOTHING = (0.0,) * (2 * len(BETS))
"""The wealth before the first bet."""


def new_part(upload_K: Tensor, average_K: Tensor) -> Tensor:
    """The part of an upload that is orthogonal to the client's average upload.

    >>> import torch
    >>> new_part(torch.tensor([-1.0, 3.0]), torch.tensor([0.0, 1.0])).tolist()
    [-1.0, 0.0]
    """
    upload_K, average_K = upload_K.double(), average_K.double()
    square = float(average_K @ average_K)
    return upload_K - average_K * (upload_K @ average_K / square) if square else upload_K


def averaged(average_K: Tensor | None, upload_K: Tensor) -> Tensor | None:
    """A client's average upload after one more upload; uploads that are not finite are ignored.

    >>> import torch
    >>> averaged(torch.tensor([1.0]), torch.tensor([2.0]))
    tensor([1.2000])
    """
    if not bool(upload_K.isfinite().all()):
        return average_K
    return upload_K if average_K is None else KEPT * average_K + (1 - KEPT) * upload_K
