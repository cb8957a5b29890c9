"""What a section is asked for."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Options:
    """What a section is asked for.

    Args:
        detectors: their names and parameters.
        seed: of the sample, or the first of the seeds.
        runs: how many, or per cell; the section's own number when None.
        data_sets: those drawn from.
        paired: whether the same is run without a detector too.
        command: what was typed.
    """

    detectors: tuple[dict[str, Any], ...]
    seed: int
    runs: int | None
    data_sets: tuple[str, ...]
    paired: bool
    command: str


def member(text: str) -> dict[str, Any]:
    """A detector from its name or from JSON.

    >>> member("norm_bound"), member('{"name": "norm_bound", "threshold": 10}')
    ({'name': 'norm_bound'}, {'name': 'norm_bound', 'threshold': 10})
    """
    found: dict[str, Any] = json.loads(text) if text.startswith("{") else {"name": text}
    return found
