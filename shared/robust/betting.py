"""Sequential evidence by betting: an e-process over objections, and a limit on the evidence.

A detector objects to a client in a round if the client fails the detector's test. In each round,
the detector bets that it will object to the client. The wealth that the detector wins with these
bets is the evidence against the client.

Legend: t is the number of rounds whose results were bet on; j is the round in which a bet begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log


@dataclass(frozen=True)
class Bet:
    """A bet, in every round, that a client gets more objections than an honest client would get.

    After t rounds, the wealth of all bets together is E_t = sum_{j <= t} w_j prod_{s=j..t} L_s +
    sum_{j > t} w_j with w_j = 1 / j(j + 1). L_s is q / p if there is an objection in round s, and
    (1 - q) / (1 - p) otherwise. If every objection has probability at most p given all earlier
    rounds, E_t is an e-process: P(sup_t E_t >= 1/a) <= a (Ville's inequality). Bets that begin in
    later rounds detect a client that turns hostile later.

    Args:
        p: largest probability of an objection to an honest client.
        q: share of objections at which the bet grows fastest; above p.
    """

    p: float
    q: float

    def settled(self, wealth: float, rounds: int, objected: bool) -> float:
        """The wealth of all bets that have begun, after round number `rounds` (counted from 1).

        >>> round(Bet(0.1, 0.5).settled(0.0, 1, objected=True), 6)
        2.5
        """
        gain = self.q / self.p if objected else (1 - self.q) / (1 - self.p)
        return (wealth + 1 / (rounds * (rounds + 1))) * gain


def evidence(wealth: Sequence[float], rounds: int) -> float:
    """The logarithm of the mean of several E_t, given the wealth of the bets that have begun.

    1 / (rounds + 1) is the total weight of the bets that have not begun. The mean of several
    e-processes is an e-process, too: P(sup_t of the mean >= 1/a) <= a, even if the E_t depend on
    each other.

    >>> evidence([0.0, 0.0], rounds=0)
    0.0
    >>> round(evidence([1.25, 0.25], rounds=3), 6)
    0.0
    """
    return log(sum(wealth) / len(wealth) + 1 / (rounds + 1))


def limit(level: float, before: int, together: int) -> float:
    """The evidence limit of a new client; it keeps false evictions less likely than `level`.

    The limit is ln(1 / a) with a = level / (before + 1)(before + together + 1). Here a is the
    client's share of `level`. Whichever clients join, their shares sum to less than `level`.

    Args:
        level: bound on the probability that any honest client is ever evicted.
        before: number of clients that joined in earlier rounds.
        together: number of clients that join in this round, including this client.

    >>> round(limit(0.001, before=0, together=20), 4)
    9.9523
    """
    return log((before + 1) * (before + together + 1) / level)
