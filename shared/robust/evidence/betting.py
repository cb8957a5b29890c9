"""Measures the evidence against a client by bets, and limits false evictions of honest clients.

A detector objects to a client in a round if the client fails the detector's test. In each round,
the detector bets that it will object to the client. The evidence against the client is the
logarithm of the wealth that the detector has won with its bets.

Legend: t is the number of rounds with a bet so far; j is the round in which a bet begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, fsum, log
from statistics import NormalDist


@dataclass(frozen=True)
class Bet:
    """A series of bets on the claim that a client draws more objections than honest clients do.

    One bet begins in each round. After t rounds, the wealth of all bets together is E_t = sum_{j <=
    t} w_j prod_{s=j..t} L_s + sum_{j > t} w_j. The bet that begins in round j starts with the
    wealth w_j = 1 / (j (j + 1)). Round s multiplies the wealth by L_s, which is `gain` if the
    detector bets on an objection and `gain_at` if it bets on a rank. E_t is an e-process if the
    expected gain of each round is at most 1, given all earlier rounds. For an e-process, Ville's
    inequality states that P(sup_t E_t >= 1/a) <= a. Bets that begin in later rounds detect a client
    that becomes hostile after some rounds.

    Args:
        p: largest probability of an objection to an honest client.
        q: assumed probability of an objection to a hostile client; must be above p. The bets are
            optimal if q is the true probability.
    """

    p: float
    q: float

    def gain(self, objected: bool) -> float:
        """The gain: q / p if the detector objected in the round, (1 - q) / (1 - p) if it did not.

        >>> Bet(0.1, 0.5).gain(objected=True)
        5.0
        """
        return self.q / self.p if objected else (1 - self.q) / (1 - self.p)

    def gain_at(self, rank: int, count: int) -> float:
        """The gain from the rank of a client's answer among `count` exchangeable answers.

        The gain is exp(-θ z_r) / mean_s exp(-θ z_s) with z_r = Φ^-1((r - 1/2) / count) and θ =
        Φ^-1(q) - Φ^-1(p), so low ranks win. Here, r is `rank`, the mean is taken over all ranks s,
        and Φ is the standard normal distribution function. Suppose that answers are normally
        distributed, and that the client's answer is shifted down by θ standard deviations. Then,
        with probability q, the client's answer is among the lowest fraction p of the answers. If
        all ranks are equally likely, the expected gain is 1. If higher ranks are more likely, the
        expected gain is less than 1.

        Args:
            rank: rank of the answer, 1 for the lowest.
            count: number of answers that are ranked.

        >>> round(sum(Bet(0.15, 0.6).gain_at(rank, 20) for rank in range(1, 21)) / 20, 6)
        1.0
        """
        return _gains(self.p, self.q, count)[rank - 1]

    def settled(self, wealth: float, rounds: int, gain: float) -> float:
        """The wealth of all bets that have begun, after round number `rounds` (counted from 1).

        >>> round(Bet(0.1, 0.5).settled(0.0, 1, gain=5.0), 6)
        2.5
        """
        return (wealth + 1 / (rounds * (rounds + 1))) * gain


@cache
def _gains(p: float, q: float, count: int) -> tuple[float, ...]:
    """Gains of all ranks from 1 to `count` (`Bet.gain_at`)."""
    normal = NormalDist()
    shift = normal.inv_cdf(q) - normal.inv_cdf(p)
    gains = [exp(-shift * normal.inv_cdf((rank - 0.5) / count)) for rank in range(1, count + 1)]
    mean = fsum(gains) / count
    return tuple(gain / mean for gain in gains)


def evidence(wealth: Sequence[float], rounds: int) -> float:
    """The logarithm of the mean of several E_t, given the wealth of the bets that have begun.

    The bets that have not begun have the total wealth 1 / (rounds + 1). The mean M_t of several E_t
    is also an e-process, even if the E_t depend on each other. Therefore P(sup_t M_t >= 1/a) <= a.

    >>> evidence([0.0, 0.0], rounds=0)
    0.0
    >>> round(evidence([1.25, 0.25], rounds=3), 6)
    0.0
    """
    return log(sum(wealth) / len(wealth) + 1 / (rounds + 1))


def limit(level: float, before: int, together: int) -> float:
    """Limit on the evidence against a new client; bounds the probability of false evictions.

    The limit is ln(1 / a), where a = level / ((before + 1) (before + together + 1)) is the
    client's share of `level`. The shares of all clients sum to less than `level`, however many
    clients join.

    Args:
        level: bound on the probability that any honest client is ever evicted.
        before: number of clients that joined in earlier rounds.
        together: number of clients that join in this round, including this client.

    >>> round(limit(0.001, before=0, together=20), 4)
    9.9523
    """
    return log((before + 1) * (before + together + 1) / level)
