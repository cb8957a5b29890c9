"""The `server.eviction` table: what happens if a detector asks to evict a client.

A detector can ask to evict the client that sent a row. The federation's mode determines what the
federation does after such a request; see `rampart_fl.shared.robust.eviction`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from rampart_fl.shared.experiment.tables import Table

RequestedDecision = Literal["accepted", "rejected", "evicted"]
"""What a detector asks for: `rejected` leaves a row out of a round; `evicted` bars the row's
client."""
Decision = Literal["accepted", "rejected", "abstained", "quarantined", "proposed", "evicted"]
"""What the federation decides about a client and its row. `abstained` leaves the row out of its
round, but does not bar the client, because no more clients may be barred. `quarantined` and
`proposed` bar the client for some rounds. Before a proposal expires, an operator may confirm or
dismiss it. `evicted` bars the client permanently."""
BARRING: frozenset[Decision] = frozenset({"quarantined", "proposed", "evicted"})
"""The decisions that exclude a client from the following rounds."""
Mode = Literal["observe", "reject", "quarantine", "evict"]
"""The most severe decision that the federation may take."""
BARRING_MODES: frozenset[Mode] = frozenset({"quarantine", "evict"})
"""The modes in which the federation may bar clients."""


class Eviction(Table):
    """What the federation does if a detector asks it to evict a client."""

    later: ClassVar[frozenset[str]] = frozenset({"scope"})

    mode: Mode = "evict"
    """The most severe decision that is allowed. `observe` only records verdicts, `reject` leaves
    rows out, `quarantine` bars clients for some rounds, and `evict` bars clients permanently."""
    by: Literal["automatic", "operator"] = "automatic"
    """Who evicts: the federation itself, or an operator who confirms the federation's proposals."""
    rounds: int = Field(default=10, ge=1)
    """Length of a quarantine, in rounds."""
    patience: int = Field(default=20, ge=1)
    """A proposed eviction is dismissed after this number of rounds if no operator has confirmed
    it."""
    bounded: bool = True
    """Whether the number of barred clients is bounded. With the bound, fewer than half of all
    clients may be barred. If `f` is set, there is a second bound: `f` plus the number of clients
    that joined after round 0 began."""
    scope: Literal["run", "federation"] = "run"
    """Whether an eviction excludes a client only from this run, or also from the federation's later
    runs. Detectors bar fewer than half of all clients from the federation; beyond this limit, they
    evict clients only from the run."""

    @model_validator(mode="after")
    def _every_setting_counts(self) -> "Eviction":
        """Refuses settings that have no effect with the given `mode` and `by`.

        In the mode `observe`, the settings of all other modes are allowed, because an operator can
        switch to any of these modes.
        """
        unused = {
            'by = "operator"': self.by == "operator" and self.mode in ("reject", "quarantine"),
            "rounds": self.rounds != 10 and self.mode in ("reject", "evict"),
            "patience": self.patience != 20 and self.by == "automatic",
            "bounded = false": not self.bounded and self.mode == "reject",
            'scope = "federation"': self.scope != "run" and self.mode in ("reject", "quarantine"),
        }
        for name, wrong in unused.items():
            if wrong:
                raise ValueError(
                    f'{name} has no effect with mode = "{self.mode}" and by = "{self.by}"'
                )
        return self

    def until(self, decision: Decision, round_: int) -> int:
        """The first round in which a client may take part again after it was barred in `round_`.

        >>> Eviction(mode="quarantine", rounds=2).until("quarantined", 5)
        8
        """
        return round_ + 1 + (self.patience if decision == "proposed" else self.rounds)


@dataclass(frozen=True)
class Standing:
    """How many clients have joined and which are barred, when a round's result is computed.

    Args:
        clients: the number of clients that have ever joined.
        founders: the number of clients that had joined when round 0 began.
        evicted: the clients barred permanently, whether by the federation or by an operator.
        quarantined: the clients barred for some rounds, including the clients proposed for
            eviction.
        mode: the mode that an operator has set in place of the experiment's mode; None if no
            operator has set a mode.
        reinstated: the clients that an operator has reinstated since the last result.
    """

    clients: int
    founders: int
    evicted: frozenset[str] = frozenset()
    quarantined: frozenset[str] = frozenset()
    mode: Mode | None = None
    reinstated: frozenset[str] = frozenset()

    @property
    def barred(self) -> frozenset[str]:
        """All clients that are currently barred."""
        return self.evicted | self.quarantined

    def most(self, f: int | None) -> int:
        """The largest number of clients that may be barred.

        Fewer than half of all clients may be barred. If f is given, there is a second bound: f plus
        the number of clients that joined after round 0 began.

        >>> Standing(clients=20, founders=20).most(None), Standing(20, 20).most(6)
        (9, 6)
        >>> Standing(clients=22, founders=20).most(6)
        8
        """
        half = max(0, (self.clients - 1) // 2)
        return half if f is None else min(half, f + self.clients - self.founders)
