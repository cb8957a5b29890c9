"""The options of a section, as given on the command line."""

import json
from dataclasses import dataclass
from typing import Any

from benchmarks.detection.combinations import FACTORS


@dataclass(frozen=True)
class Options:
    """The options of a section.

    Args:
        detectors: names and parameters of the detectors.
        seed: seed of the sample, or the first of several seeds.
        runs: number of runs, in total or per cell; None for the section's default.
        data_sets: the data sets from which combinations are drawn.
        partitions: the partitions from which the section `benign` draws.
        paired: number of combinations that are also run without a detector.
        often: minimum number of combinations of the section `benign` with each level.
        command: the command line that was typed.
        fractions: the fractions of clients per round from which combinations are drawn, and for
            which the sections `loud` and `cost` have cells.
    """

    detectors: tuple[dict[str, Any], ...]
    seed: int
    runs: int | None
    data_sets: tuple[str, ...]
    partitions: tuple[str, ...]
    paired: int
    often: int
    command: str
    fractions: tuple[float, ...] = FACTORS["fraction"]


def member(text: str) -> dict[str, Any]:
    """A detector from its name or from JSON.

    >>> member("norm_bound"), member('{"name": "norm_bound", "threshold": 10}')
    ({'name': 'norm_bound'}, {'name': 'norm_bound', 'threshold': 10})
    """
    table: dict[str, Any] = json.loads(text) if text.startswith("{") else {"name": text}
    return table
