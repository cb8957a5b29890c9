"""The level of the default detectors: how often their evidence alone bars an honest client.

The benchmark runs no federation. It draws the results of each round at random, with the largest
probabilities that the detectors' assumptions allow: objections with probability `tolerated`; for
`response` also the rank of the client's answer, all ranks alike; and for `challenge` also the rank
of its answer to the challenges of others, all ranks alike. It then computes the evidence as the
detectors do. Every client is challenged, or on trial, in every round.

Legend: R federations of one batch, N clients, B bets, Q ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection import report
from benchmarks.detection.bounds import interval
from benchmarks.detection.options import Options
from rampart_fl.shared.robust.detectors.challenge import ChallengeDetector
from rampart_fl.shared.robust.detectors.response import ResponseDetector
from rampart_fl.shared.robust.evidence import relays
from rampart_fl.shared.robust.evidence.betting import Bet, limit
from rampart_fl.shared.robust.evidence.sequential import SequentialDetector

RUNS, BATCH = 100_000, 2_000
CLIENTS, LATER, ROUNDS = 20, 5, 100
"""Numbers of initial clients, of clients that join after half of the rounds, and of rounds."""
LEVELS = (0.1, 0.01, 1e-3)


@dataclass(frozen=True)
class Bets:
    """All bets of a detector on a client.

    Args:
        on_objections: bets on objections.
        ranks: number of answers among which the detector ranks a client's answer; 1 if it does not.
        on_ranks: bets on low ranks.
        on_relays: bets on answers to the challenges of other clients. Each bet is placed on high
            ranks and on low ranks.
        relays: number of answers among which the detector ranks such an answer.
    """

    on_objections: tuple[Bet, ...]
    ranks: int = 1
    on_ranks: tuple[Bet, ...] = ()
    on_relays: tuple[Bet, ...] = ()
    relays: int = 1

    @property
    def own(self) -> int:
        """Number of bets on a client's own answers and uploads."""
        return len(self.on_objections) + len(self.on_ranks)

    @property
    def count(self) -> int:
        """Number of all bets."""
        return self.own + 2 * len(self.on_relays)

    def gains(self, shape: tuple[int, int], draws: np.random.Generator) -> NDArray[np.float64]:
        """Gains (R, N, B) of one round, for R federations of N clients."""
        columns = list[NDArray[np.float64]]()
        chance_RN, rank_RN = draws.random(shape), draws.integers(self.ranks, size=shape)
        for bet in self.on_objections:
            columns.append(np.where(chance_RN < bet.p, bet.gain(True), bet.gain(False)))
        for bet in self.on_ranks:
            columns.append(_gains(bet, self.ranks)[rank_RN])
        relayed_RN = draws.integers(self.relays, size=shape)
        for bet in self.on_relays:
            gain_Q = _gains(bet, self.relays)
            columns += [gain_Q[relayed_RN], gain_Q[self.relays - 1 - relayed_RN]]
        return np.stack(columns, axis=-1)

    def value(self, wealth_RNB: NDArray[np.float64]) -> NDArray[np.float64]:
        """The e-values (R, N) of clients, from the wealth of all bets."""
        own_RN = wealth_RNB[..., : self.own].mean(axis=-1)
        if not self.on_relays:
            return own_RN
        relayed_RN = wealth_RNB[..., self.own :].mean(axis=-1)
        mean_RN: NDArray[np.float64] = (own_RN + relayed_RN) / 2
        return mean_RN


def _gains(bet: Bet, count: int) -> NDArray[np.float64]:
    return np.array([bet.gain_at(rank, count) for rank in range(1, count + 1)])


def bets() -> dict[str, Bets]:
    """The bets of the default detectors, keyed by name."""
    response, challenge = ResponseDetector(), ChallengeDetector()
    return {
        "response": Bets(_bets(response), 1 + response.decoys, _bets(response)),
        "challenge": Bets(_bets(challenge), on_relays=relays.BETS, relays=1 + challenge.decoys),
    }


def _bets(detector: SequentialDetector) -> tuple[Bet, ...]:
    return tuple(Bet(detector.tolerated, share) for share in detector.expected)


def false_evictions(seed: int, placed: Bets, runs: int = RUNS) -> dict[float, int]:
    """Number of federations in which any honest client is ever barred, keyed by level."""
    draws = np.random.default_rng(seed)
    counts = dict.fromkeys(LEVELS, 0)
    limits = {
        level: np.array(
            [exp(limit(level, 0, CLIENTS))] * CLIENTS + [exp(limit(level, CLIENTS, LATER))] * LATER
        )
        for level in LEVELS
    }
    for start in range(0, runs, BATCH):
        size = min(BATCH, runs - start)
        highest_RN = np.zeros((size, CLIENTS + LATER))
        for part, rounds in ((slice(CLIENTS), ROUNDS), (slice(CLIENTS, None), ROUNDS // 2)):
            shape = highest_RN[:, part].shape
            wealth_RNB = np.zeros((*shape, placed.count))
            for number in range(1, rounds + 1):
                wealth_RNB += 1 / (number * (number + 1))
                wealth_RNB *= placed.gains(shape, draws)
                value_RN = placed.value(wealth_RNB + 1 / (number + 1))
                highest_RN[:, part] = np.maximum(highest_RN[:, part], value_RN)
        for level in LEVELS:
            counts[level] += int((highest_RN > limits[level]).any(axis=1).sum())
    return counts


def write(options: Options) -> Iterator[str]:
    """The section's part of the report."""
    runs = options.runs or RUNS
    yield "## Level of the statistic"
    yield ""
    yield (
        f"`{options.command}`: {runs:,} federations of {CLIENTS} honest clients over {ROUNDS}"
        f" rounds, {LATER} more from halfway on. Every client is challenged, or on trial, in every"
        " round. Every round draws an objection with the probability that is tolerated, the worst"
        " that the assumption allows; it also draws, all ranks alike, the rank of the answer to the"
        " challenge (`response`), or to the challenges of other clients (`challenge`)."
    )
    yield from report.table(
        ("detector", "level", "federations with a false eviction", "share", "95% interval"),
        [
            [f"`{name}`", f"{level:g}", str(n), f"{n / runs:.3%}", _sentence(interval(n, runs))]
            for name, placed in bets().items()
            for level, n in false_evictions(options.seed, placed, runs).items()
        ],
    )


def _sentence(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.3%} to {bounds[1]:.3%}"
