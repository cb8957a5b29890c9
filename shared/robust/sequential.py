"""The common base of detectors that gather evidence round by round.

Legend: M rows of the round, K numbers of a sketch.
"""

from collections.abc import Callable, Sequence
from math import exp, log
from typing import Protocol, Self, TypeVar

import torch
from pydantic import Field, model_validator

from rampart_fl.shared.robust.base import Context, Detector, Rows
from rampart_fl.shared.robust.betting import Bet, limit
from rampart_fl.shared.robust.sketch import Traces, sketch

SUSPECT = log(20)
"""Evidence above which an objection causes a row to be left out of its round."""
SPARE = 3.0
"""Largest excess of evidence over the limit. If nobody evicts the client, evidence is capped."""


class Bettor(Protocol):
    """A client on which bets are placed: its limit, and the bets' wealth after `rounds` rounds."""

    limit: float
    wealth: float
    rounds: int


Client = TypeVar("Client", bound=Bettor)


class SequentialDetector(Detector):
    """A detector whose evidence is an e-process over objections, kept below a level.

    Subclasses give `tolerated` and `expected` their defaults and their meaning.
    """

    level: float = Field(default=1e-3, gt=0, lt=1)
    """Probability that any honest client is ever evicted, under the detector's assumption."""
    tolerated: float = Field(gt=0, lt=1)
    """Largest probability of an objection to an honest client."""
    expected: float = Field(gt=0, lt=1)
    """Share of rounds that are expected to object to an attacker."""
    sketch: int = Field(default=1024, ge=64)
    """Size of the sketches that are kept of each client's upload and starting model."""

    @model_validator(mode="after")
    def _attackers_are_objected_to_more(self) -> Self:
        if self.expected <= self.tolerated:
            raise ValueError(f"expected {self.expected} is not above tolerated {self.tolerated}")
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
        heard: int,
        create: Callable[[float], Client],
    ) -> int:
        """Give each new client its share of the level; return how many clients ever joined."""
        fresh = [client for client in clients if client not in known]
        share = limit(self.level, heard, len(fresh))
        known.update((client, create(share)) for client in fresh)
        return heard + len(fresh)

    def _settle(self, one: Bettor, bet: Bet, objected: bool) -> None:
        """Update the wealth of a client's bets by the result of one round."""
        one.rounds += 1
        wealth = bet.settled(one.wealth, one.rounds, objected)
        one.wealth = min(wealth, exp(one.limit + SPARE))

    def _sketched(self, rows: Rows, context: Context) -> Traces:
        """Sketches for rows that have none, as if all clients had started from the reference."""
        reference_D = context.reference_D
        start_D = torch.zeros(rows.dim) if reference_D is None else reference_D
        uploads = [sketch(rows.row(i), self.sketch) for i in range(len(rows))]
        return Traces(torch.stack(uploads), sketch(start_D, self.sketch).expand(len(rows), -1))
