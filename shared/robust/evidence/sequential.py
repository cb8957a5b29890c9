"""The common base class of detectors that gather evidence round by round.

Legend: M rows of the round, K numbers of a sketch.
"""

from collections.abc import Callable, Sequence
from math import exp, log
from typing import Annotated, Self, TypeVar

import torch
from pydantic import Field, model_validator

from rampart_fl.shared.robust.base import Context, Detector, Rows
from rampart_fl.shared.robust.evidence.betting import Bet, limit
from rampart_fl.shared.robust.sketch import Traces, sketch

SUSPECT = log(20)
"""A client is a suspect if the evidence or the suspicion against it is above this limit. If the
detector objects to a suspect in a round, the suspect's row is left out of this round."""
DOUBT = log(3)
"""A detector awaits a client's next upload if the evidence or the suspicion against the client is
above this limit."""
SPARE = 3.0
"""The logarithm of the wealth won against a client is capped at the client's limit plus this
number. Without the cap, the evidence against a client that nobody evicts would grow without
bound."""


Client = TypeVar("Client")
Share = Annotated[float, Field(gt=0, lt=1)]
Wealth = tuple[float, ...]
"""The wealth of the bets placed so far, one number for each expected share of objections."""


class SequentialDetector(Detector):
    """A detector whose evidence is the logarithm of an e-process, so that false evictions are rare.

    Subclasses define the defaults and the meaning of `tolerated` and `expected`.
    """

    level: float = Field(default=1e-3, gt=0, lt=1)
    """Bound on the probability that any honest client is ever evicted, under the detector's
    assumptions."""
    tolerated: float = Field(gt=0, lt=1)
    """Assumed bound on the probability of an objection to an honest client."""
    expected: tuple[Share, ...] = Field(min_length=1, max_length=8)
    """Expected shares of rounds in which the detector objects to an attacker. The detector places a
    separate bet on each expected share. The wealth of each bet is an e-process, and the evidence is
    the logarithm of the mean of these e-processes."""
    sketch: int = Field(default=1024, ge=64)
    """Size of the sketches of each client's upload and starting model."""

    @model_validator(mode="after")
    def _attackers_are_objected_to_more(self) -> Self:
        if min(self.expected) <= self.tolerated:
            raise ValueError(
                f"expected {min(self.expected)} is not above tolerated {self.tolerated}"
            )
        return self

    @property
    def traces(self) -> int:
        return self.sketch

    @property
    def odds(self) -> str:
        """The level as text, for the reasons of verdicts."""
        return f"false-eviction level 1 in {1 / self.level:,.0f}"

    def _admit(
        self,
        known: dict[str, Client],
        clients: Sequence[str],
        joined: int,
        create: Callable[[float], Client],
    ) -> int:
        """Adds new clients, each with its evidence limit; returns how many clients ever joined."""
        fresh = [client for client in clients if client not in known]
        share = limit(self.level, joined, len(fresh))
        known.update((client, create(share)) for client in fresh)
        return joined + len(fresh)

    def _settled(
        self, wealth: Wealth, rounds: int, limit: float, tolerated: float, objected: bool
    ) -> Wealth:
        """The wealth of the bets against a client after one more round.

        Args:
            wealth: the wealth before the round, one number for each share in `expected`.
            rounds: number of rounds with a bet so far, including this round.
            limit: the client's limit on evidence; the logarithm of the wealth is capped at limit +
                `SPARE`.
            tolerated: largest probability of an objection to an honest client in this round.
            objected: whether the detector objected to the client in this round.
        """
        bets = [Bet(tolerated, tolerated * share / self.tolerated) for share in self.expected]
        gains = [bet.gain(objected) for bet in bets]
        return _grown(wealth, bets, gains, rounds, limit)

    def _settled_at(
        self, wealth: Wealth, rounds: int, limit: float, rank: int, count: int
    ) -> Wealth:
        """The wealth of the bets on low ranks of a client's answers after one more round.

        Args:
            wealth, rounds, limit: as for `_settled`.
            rank: rank of the client's answer, 1 for the lowest.
            count: number of ranked answers, to the challenge and to its decoys. If the client
                ignores its challenge, all ranks are equally likely.
        """
        bets = [Bet(self.tolerated, share) for share in self.expected]
        gains = [bet.gain_at(rank, count) for bet in bets]
        return _grown(wealth, bets, gains, rounds, limit)

    @property
    def _nothing(self) -> Wealth:
        """The wealth before the first bet."""
        return (0.0,) * len(self.expected)

    def _sketched(self, rows: Rows, context: Context) -> Traces:
        """Sketches of rows, on the assumption that all clients started from the global model."""
        reference_D = context.reference_D
        start_D = torch.zeros(rows.dim) if reference_D is None else reference_D
        uploads = [
            sketch(rows.row(i), self.sketch, context.seed, rows.place) for i in range(len(rows))
        ]
        start_K = sketch(start_D, self.sketch, context.seed, rows.place)
        return Traces(torch.stack(uploads), start_K.expand(len(rows), -1))


def _grown(
    wealth: Wealth, bets: Sequence[Bet], gains: Sequence[float], rounds: int, limit: float
) -> Wealth:
    """The wealth of each bet after a round with the given gains, at most exp(limit + `SPARE`)."""
    most = exp(limit + SPARE)
    return tuple(
        min(bet.settled(one, rounds, gain), most)
        for bet, one, gain in zip(bets, wealth, gains, strict=True)
    )
