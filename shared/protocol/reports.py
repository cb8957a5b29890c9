"""What a client reports about its training, both over HTTP and in a simulation.

Legend: D parameters.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import LARGEST


def reportable(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that a report can contain: those between -`LARGEST` and `LARGEST`.

    >>> reportable({"loss_before": 2.5, "loss_after": float("nan"), "error": 1e300})
    {'loss_before': 2.5}
    """
    return {name: value for name, value in metrics.items() if abs(value) <= LARGEST}


def with_gap(metrics: Mapping[str, float]) -> dict[str, float]:
    """The `reportable` metrics, and `loss_gap`, which is the decrease of the loss in training.

    If this decrease is not reportable, `loss_gap` is 0.

    >>> with_gap({"loss_before": 2.5, "loss_after": 2.0})
    {'loss_before': 2.5, 'loss_after': 2.0, 'loss_gap': 0.5}
    >>> with_gap({"loss_before": 2.5, "loss_after": float("inf")})
    {'loss_before': 2.5, 'loss_gap': 0.0}
    """
    gap = metrics["loss_before"] - metrics["loss_after"]
    return {**reportable(metrics), **(reportable({"loss_gap": gap}) or {"loss_gap": 0.0})}


def sendable(update_D: NDArray[np.float32], dtype: str = "F32") -> tuple[NDArray[np.float32], bool]:
    """Replaces a diverged update by zeros; returns the result, and whether the update diverged.

    An update has diverged if any element is not finite in the upload's number format.

    >>> [sendable(np.array([1, 1e6], np.float32), dtype)[1] for dtype in ("F32", "F16")]
    [False, True]
    """
    if dtype == "F32":
        as_sent_D = update_D
    else:
        with np.errstate(over="ignore"):  # An overflow counts as divergence.
            as_sent_D = wire.widen(wire.narrow(update_D, dtype), dtype)
    diverged = not bool(np.isfinite(as_sent_D).all())
    return (np.zeros_like(update_D) if diverged else update_D), diverged
