"""Sequential evidence by betting: an e-process over objections, and shares of one level.

Legend: t rounds that counted, j the round in which a bet begins.
"""

from dataclasses import dataclass
from math import log


@dataclass(frozen=True)
class Bet:
    """Bets, round by round, that a client is objected to more often than an honest one.

    E_t = sum_{j <= t} w_j prod_{s=j..t} L_s + sum_{j > t} w_j with w_j = 1 / j(j + 1), L = q / p
    after an objection and (1 - q) / (1 - p) after none. If each objection has probability at most
    p given all before, E_t is an e-process: P(sup_t E_t >= 1/a) <= a (Ville's inequality). Bets
    that begin later find a client that turns hostile later.

    Args:
        p: probability of an objection to an honest client, at most.
        q: share of objections at which the bet grows fastest, above p.
    """

    p: float
    q: float

    def settled(self, wealth: float, rounds: int, objected: bool) -> float:
        """Wealth of the bets that have begun, once round `rounds` (from 1) is settled.

        >>> round(Bet(0.1, 0.5).settled(0.0, 1, objected=True), 6)
        2.5
        """
        gain = self.q / self.p if objected else (1 - self.q) / (1 - self.p)
        return (wealth + 1 / (rounds * (rounds + 1))) * gain

    @staticmethod
    def evidence(wealth: float, rounds: int) -> float:
        """ln E_t: the bets that have begun, and the share that is still to begin.

        >>> Bet.evidence(0.0, 0)
        0.0
        """
        return log(wealth + 1 / (rounds + 1))


def limit(level: float, before: int, together: int) -> float:
    """Evidence that bars a newcomer, so that all false evictions together stay below the level.

    ln(1 / a) with a = level / (before + 1)(before + together + 1); over any sequence of newcomers
    the shares a add up to less than `level`.

    Args:
        level: probability that any honest client is ever evicted.
        before: clients heard of before.
        together: newcomers of this round, this one included.

    >>> round(limit(0.001, before=0, together=20), 4)
    9.9523
    """
    return log((before + 1) * (before + together + 1) / level)
