"""Figures of two runs of the same combination."""

from typing import Any


def paired(accuracy: float, **others: Any) -> dict[str, Any]:
    """Figures of a run with this accuracy; the accuracies of its second run are 75 %."""
    return {
        "commit": "abc",
        "core_s": 1.0,
        "honest_evicted": 0,
        "received": accuracy,
        "local": accuracy,
        "personal": None,
        "without": {"received": 0.75, "local": 0.75, "personal": None},
        **others,
    }
