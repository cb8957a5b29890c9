"""The level of the default detectors: how often their evidence alone bars an honest client.

The benchmark runs no federation. A detector objects to a client in a round if the client fails the
detector's test. The benchmark draws these objections at random for each round, with the largest
probability that the detectors' assumption allows. It then computes the evidence from the drawn
objections as the detectors do. In a share `SILENT` of the rounds, responses and answers are
uninformative.

A second simulation asks how often a client is evicted that violates the assumption as long as it is
not challenged, and keeps it in rounds with a challenge.

Legend: R federations of one batch, N clients, B bets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

import numpy as np

from benchmarks.detection import report
from benchmarks.detection.bounds import interval
from benchmarks.detection.options import Options
from rampart_fl.shared.robust.betting import limit
from rampart_fl.shared.robust.detectors.challenge import ChallengeDetector
from rampart_fl.shared.robust.detectors.response import ResponseDetector
from rampart_fl.shared.robust.sequential import SPARE, SUSPECT

RUNS, BATCH = 100_000, 2_000
CLIENTS, LATER, ROUNDS = 20, 5, 100
"""Numbers of initial clients, of clients that join after half of the rounds, and of rounds."""
LEVELS = (0.1, 0.01, 1e-3)
RATES = (0.15, 0.5, 0.9)
"""Probabilities of an objection to a client that is not challenged."""
SILENT = 0.3
"""Share of rounds in which responses or answers are uninformative."""


@dataclass(frozen=True)
class Odds:
    """The odds at which a detector bets that it will object to a client.

    Args:
        tolerated: largest probability of an objection to an honest client.
        gains: factors by which an objection multiplies the wealth of each of the detector's bets.
        silent: like `tolerated`, for uninformative rounds; None if these rounds do not count.
    """

    tolerated: float
    gains: tuple[float, ...]
    silent: float | None = None


def odds() -> dict[str, Odds]:
    """The odds of the default detectors, keyed by name."""
    response, challenge = ResponseDetector(), ChallengeDetector()
    return {
        "response": Odds(
            response.tolerated,
            tuple(share / response.tolerated for share in response.expected),
            response.tolerated_long,
        ),
        "challenge": Odds(
            challenge.tolerated,
            tuple(share / challenge.tolerated for share in challenge.expected),
        ),
    }


def false_evictions(seed: int, bets: Odds, runs: int = RUNS) -> dict[float, int]:
    """Number of federations in which any honest client is ever barred, keyed by level."""
    draws = np.random.default_rng(seed)
    gains_B = np.array(bets.gains)
    found = dict.fromkeys(LEVELS, 0)
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
            counted_RN = np.zeros_like(highest_RN[:, part])
            wealth_RNB = np.zeros((*counted_RN.shape, len(gains_B)))
            for _ in range(rounds):
                silent_RN = draws.random(counted_RN.shape) < SILENT
                counts_RN = ~silent_RN | (bets.silent is not None)
                p_RN = np.where(silent_RN, bets.silent or 0.0, bets.tolerated)
                objected_RN = draws.random(counted_RN.shape) < p_RN
                kept_RNB = (1 - gains_B * p_RN[..., None]) / (1 - p_RN[..., None])
                gain_RNB = np.where(objected_RN[..., None], gains_B, kept_RNB)
                counted_RN += counts_RN
                begins_RN = 1 / np.maximum(counted_RN * (counted_RN + 1), 1)
                begun_RNB = wealth_RNB + begins_RN[..., None]
                wealth_RNB = np.where(counts_RN[..., None], begun_RNB * gain_RNB, wealth_RNB)
                value_RN = wealth_RNB.mean(axis=-1) + 1 / (counted_RN + 1)
                highest_RN[:, part] = np.maximum(highest_RN[:, part], value_RN)
        for level in LEVELS:
            found[level] += int((highest_RN > limits[level]).any(axis=1).sum())
    return found


def suspect_evictions(seed: int, rate: float, rounds: int, runs: int = RUNS) -> int:
    """Number of clients, of `runs`, that `response` evicts.

    In rounds with a challenge, an objection to a client has the tolerated probability. In rounds
    without a challenge, the probability is `rate`.
    """
    draws, bets = np.random.default_rng(seed), odds()["response"]
    gains_B, most = np.array(bets.gains), limit(LEVELS[-1], 0, CLIENTS)
    kept_B = (1 - gains_B * bets.tolerated) / (1 - bets.tolerated)
    wealth_RB = np.zeros((runs, len(gains_B)))
    evidence_R, evicted_R = np.zeros(runs), np.zeros(runs, dtype=bool)
    for round_ in range(1, rounds + 1):
        suspected_R = evidence_R > SUSPECT
        objected_R = draws.random(runs) < np.where(suspected_R, bets.tolerated, rate)
        wealth_RB += 1 / (round_ * (round_ + 1))
        wealth_RB *= np.where(objected_R[:, None], gains_B, kept_B)
        evidence_R = np.log(wealth_RB.mean(axis=1) + 1 / (round_ + 1))
        wealth_RB = np.minimum(wealth_RB, exp(most + SPARE))
        evicted_R |= suspected_R & objected_R & (evidence_R > most)
    return int(evicted_R.sum())


def write(options: Options) -> Iterator[str]:
    """The section's part of the report."""
    runs = options.runs or RUNS
    yield "## Level of the statistic"
    yield ""
    yield (
        f"`{options.command}`: {runs:,} federations of {CLIENTS} honest clients over {ROUNDS}"
        f" rounds, {LATER} more from halfway on. Every client is objected to in every round with"
        f" the probability that is tolerated, the worst that the assumption allows; in {SILENT:.0%}"
        " of the rounds responses and answers tell nothing. For `challenge` every client is on"
        " trial all the time."
    )
    yield from report.table(
        ("detector", "level", "federations with a false eviction", "share", "95% interval"),
        [
            [f"`{name}`", f"{level:g}", str(n), f"{n / runs:.3%}", _told(interval(n, runs))]
            for name, bets in odds().items()
            for level, n in false_evictions(options.seed, bets, runs).items()
        ],
    )
    yield ""
    yield (
        f"A client of {CLIENTS}, at the level {LEVELS[-1]:g}, to which `response` objects with the"
        " tolerated probability in rounds with a challenge, and with another one in all others:"
        f" how many of {runs:,} such clients are evicted."
    )
    yield from report.table(
        ("probability without a challenge", "rounds", "clients evicted", "share", "95% interval"),
        [
            [f"{rate:g}", str(rounds), str(n), f"{n / runs:.3%}", _told(interval(n, runs))]
            for rate in RATES
            for rounds in (ROUNDS, 4 * ROUNDS)
            for n in [suspect_evictions(options.seed, rate, rounds, runs)]
        ],
    )


def _told(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.3%} to {bounds[1]:.3%}"
