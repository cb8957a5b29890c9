"""What is done about a client that a detector would evict: the `server.eviction` table.

What a detector asks for of a row, the mode of the federation makes a decision about its client;
see `rampart_fl.shared.robust.eviction`.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from rampart_fl.shared.experiment.tables import Table

Asked = Literal["accepted", "rejected", "evicted"]
"""What a detector asks for: `rejected` leaves a row out of its round, `evicted` bars its client."""
Decision = Literal["accepted", "rejected", "abstained", "quarantined", "proposed", "evicted"]
"""What is done: an `abstained` eviction leaves the row out of its round, as the bound on those
barred is reached; `quarantined` and `proposed` bar the client for some rounds, the latter until an
operator has decided; `evicted` bars it for good."""
BARRING: frozenset[Decision] = frozenset({"quarantined", "proposed", "evicted"})
"""The decisions that take a client out of the rounds that follow."""
Mode = Literal["observe", "reject", "quarantine", "evict"]
"""How far decisions may go."""


class Eviction(Table):
    """What happens to clients that a detector wants to evict."""

    mode: Mode = "evict"
    """Only record verdicts, leave rows out, bar clients for some rounds, or bar them for good."""
    by: Literal["automatic", "operator"] = "automatic"
    """Who evicts: the federation itself, or an operator who confirms its proposals."""
    rounds: int = Field(default=10, ge=1)
    """Length of a quarantine, in rounds."""
    patience: int = Field(default=20, ge=1)
    """Rounds after which a proposal is dismissed, unless an operator decides."""
    bounded: bool = True
    """Bar less than half of the clients, and at most `f` of the founders if `f` is stated."""

    @model_validator(mode="after")
    def _every_setting_counts(self) -> "Eviction":
        """Refuses what no mode that may be switched to would use: `observe` may go to any."""
        unused = {
            'by = "operator"': self.by == "operator" and self.mode in ("reject", "quarantine"),
            "rounds": self.rounds != 10 and self.mode in ("reject", "evict"),
            "patience": self.patience != 20 and self.by == "automatic",
            "bounded = false": not self.bounded and self.mode == "reject",
        }
        for name, wrong in unused.items():
            if wrong:
                raise ValueError(f'{name} does nothing with mode = "{self.mode}", by = "{self.by}"')
        return self

    def until(self, decision: Decision, round_: int) -> int:
        """The first round that a client is back in, if this was decided about it in `round_`.

        >>> Eviction(mode="quarantine", rounds=2).until("quarantined", 5)
        8
        """
        return round_ + 1 + (self.patience if decision == "proposed" else self.rounds)


@dataclass(frozen=True)
class Standing:
    """Who is in a federation, and who is barred from it, when a round is decided.

    Args:
        clients: how many were ever heard of.
        founders: how many of them were there when round 0 began.
        evicted: who is barred for good, by whomever.
        quarantined: who is barred for some rounds, by a proposal too.
        mode: the operator's, where it takes the place of the experiment's.
    """

    clients: int
    founders: int
    evicted: frozenset[str] = frozenset()
    quarantined: frozenset[str] = frozenset()
    mode: Mode | None = None

    @property
    def barred(self) -> frozenset[str]:
        """All who may not take part now."""
        return self.evicted | self.quarantined

    def most(self, f: int | None) -> int:
        """How many may be barred: less than half, and at most f and one for each who joined later.

        >>> Standing(clients=20, founders=20).most(None), Standing(20, 20).most(6)
        (9, 6)
        >>> Standing(clients=22, founders=20).most(6)
        8
        """
        half = max(0, (self.clients - 1) // 2)
        return half if f is None else min(half, f + self.clients - self.founders)
