"""Which clients the detector `response` challenges although they are not suspects.

Noise can hide how an attacker responds to the movement of its starting model. The detector
therefore also challenges clients whose uploads oppose those of other clients. Opposing others is no
evidence; it only decides who is challenged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import torch

from rampart_fl.shared.robust.base import Context
from rampart_fl.shared.rounding import share

OPPOSES = -0.02
"""A client's uploads oppose those of others if their average agreement is below this number."""
COMPARED = 3
"""A client is spot-checked only after this number of its uploads were compared with others."""
KEPT = 0.8
"""Decay factor of the average agreement: the weight of the old average when an upload is added."""
CREDIT = 2.0
"""A client with this credit is no longer spot-checked. A clear answer adds 1 to the credit, an
answer with a low rank subtracts 1, and any other answer adds `SOME`. A client that reverses its
updates therefore rarely gets enough credit before it becomes a suspect."""
SOME = 0.1
"""See `CREDIT`. A client whose answers are neither clear nor low is spot-checked 20 times."""


@dataclass
class SpotChecks:
    """What is remembered about a client to decide whether it is spot-checked.

    Args:
        agreement: average agreement of the client's uploads with other clients' uploads. The
            agreement of an upload is its median cosine with other uploads of the round.
        compared: number of uploads that have entered this average.
        credit: what the client's answers to challenges say in its favour (see `CREDIT`).
        last_round: the latest round in which the client took part.
    """

    agreement: float = 0.0
    compared: float = 0
    credit: float = 0.0
    last_round: float = -1

    @property
    def needed(self) -> bool:
        """Whether the client's uploads oppose those of others, and the client lacks credit."""
        opposes = self.compared >= COMPARED and self.agreement < OPPOSES
        return opposes and self.credit < CREDIT

    def uploaded(self, agreement: float) -> None:
        """Adds an upload's agreement to the average.

        An agreement of 0 is ignored, because no other upload was comparable. An upload with huge
        coordinates has no finite agreement; NaN would stay in the average for ever.

        >>> checks = SpotChecks()
        >>> for agreement in (0.5, float("nan"), -0.5):
        ...     checks.uploaded(agreement)
        >>> round(checks.agreement, 3), checks.compared
        (0.3, 2)
        """
        if agreement and isfinite(agreement):
            kept = KEPT if self.compared else 0.0
            self.agreement = kept * self.agreement + (1 - kept) * agreement
            self.compared += 1

    def answered(self, clear: bool, low: bool) -> None:
        """Adds an answer to a challenge to the credit.

        >>> checks = SpotChecks()
        >>> for clear, low in ((True, False), (True, False), (False, True)):
        ...     checks.answered(clear, low)
        >>> checks.credit
        1.0
        """
        self.credit += 1.0 if clear else -1.0 if low else SOME


class Remembered(Protocol):
    """A client's memory, as far as spot checks need it."""

    checks: SpotChecks
    length: float

    @property
    def suspected(self) -> bool: ...

    @property
    def evidence(self) -> float: ...


def chosen(
    known: Mapping[str, Remembered], fraction: float, longest: float, context: Context, name: str
) -> list[str]:
    """The clients that are spot-checked in the next round; none under the buffered policy.

    Only clients that took part in this round are chosen, so clients that do not answer cannot take
    the places of others. Clients with the most evidence against them come first; ties are broken at
    random.

    Args:
        known: what is remembered about each client, keyed by client id.
        fraction: largest fraction of this round's clients that are spot-checked.
        longest: clients whose latest upload has a larger norm are not chosen, because the detector
            rejects such an upload if it started from a challenged model.
        context: the current round and the seed.
        name: the detector's name, which the name of the random draw contains.
    """
    if context.buffered:
        return []
    present = [c for c in sorted(known) if known[c].checks.last_round == context.round]
    unsure = [
        c
        for c in present
        if known[c].checks.needed and not known[c].suspected and known[c].length <= longest
    ]
    draws = context.generator(name, "spot checks")
    shuffled = [unsure[place] for place in torch.randperm(len(unsure), generator=draws).tolist()]
    shuffled.sort(key=lambda client: known[client].evidence, reverse=True)
    return shuffled[: share(fraction, len(present))]
