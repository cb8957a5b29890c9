"""The level of the default detector: how often its evidence alone bars an honest client.

No federation is run: objections are drawn as the assumption has them at its worst, with the
probability that is tolerated in every round, and settled by the detector's own arithmetic. In a
share of the rounds responses tell nothing.

Legend: R federations of one batch, N clients.
"""

from collections.abc import Iterator
from math import exp

import numpy as np

from benchmarks.detection import report
from benchmarks.detection.bounds import interval
from benchmarks.detection.options import Options
from rampart_fl.shared.robust.betting import limit
from rampart_fl.shared.robust.detectors.response import ResponseDetector

RUNS, BATCH = 100_000, 2_000
CLIENTS, LATER, ROUNDS = 20, 5, 100
"""Founders, clients that join halfway, and rounds."""
LEVELS = (0.1, 0.01, 1e-3)
SILENT = 0.3
"""Share of rounds in which responses tell nothing."""


def false_evictions(seed: int, runs: int = RUNS) -> dict[float, int]:
    """Federations in which any honest client is ever barred, by level."""
    detector = ResponseDetector()
    draws, gain = np.random.default_rng(seed), detector.expected / detector.tolerated
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
            wealth_RN = np.zeros_like(highest_RN[:, part])
            for number in range(1, rounds + 1):
                silent_RN = draws.random(wealth_RN.shape) < SILENT
                p_RN = np.where(silent_RN, detector.tolerated_long, detector.tolerated)
                objected_RN = draws.random(wealth_RN.shape) < p_RN
                gain_RN = np.where(objected_RN, gain, (1 - gain * p_RN) / (1 - p_RN))
                wealth_RN = (wealth_RN + 1 / (number * (number + 1))) * gain_RN
                value_RN = wealth_RN + 1 / (number + 1)
                highest_RN[:, part] = np.maximum(highest_RN[:, part], value_RN)
        for level in LEVELS:
            found[level] += int((highest_RN > limits[level]).any(axis=1).sum())
    return found


def write(options: Options) -> Iterator[str]:
    """The section's part of the report."""
    runs = options.runs or RUNS
    yield "## Level of the statistic"
    yield ""
    yield (
        f"`{options.command}`: {runs:,} federations of {CLIENTS} honest clients over {ROUNDS}"
        f" rounds, {LATER} more from halfway on. Every client is objected to in every round with"
        f" the probability that is tolerated, the worst that the assumption allows; in {SILENT:.0%}"
        " of the rounds responses tell nothing."
    )
    yield from report.table(
        ("level", "federations with a false eviction", "share", "95% interval"),
        [
            [f"{level:g}", str(events), f"{events / runs:.3%}", _told(interval(events, runs))]
            for level, events in false_evictions(options.seed, runs).items()
        ],
    )


def _told(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.3%} to {bounds[1]:.3%}"
