"""Checks the sample counts in a client's metrics.

Accuracies and attack success rates are computed from sums of counts over all clients. Without these
checks, one client could therefore set an accuracy to any number.
"""

from collections.abc import Mapping

from pydantic_core import PydanticCustomError

MOST_SAMPLES = 10**9
"""The largest number of samples that a client may claim."""
WHOLES = {
    "correct_": "test_samples",
    "certified_": "test_samples",
    "fooled_": "triggered_samples",
}
"""Maps each prefix to a metric, which is the upper limit for every metric with this prefix. For
example, `correct_local` counts some of the samples that `test_samples` counts."""
INVALID_CLAIM = "invalid_claim"
"""The type of the validation error about an impossible count."""


def wrong_counts(metrics: Mapping[str, float]) -> dict[str, str]:
    """Says what is wrong with each impossible count, keyed by the count's name.

    A count is a metric whose name ends with `_samples` or begins with a prefix in `WHOLES`. A count
    need not be a whole number, because a client may compute it from a rounded accuracy.

    >>> wrong_counts({"test_samples": 4, "correct_local": 5, "loss_gap": -1e9})
    {'correct_local': 'correct_local is 5, but test_samples is 4'}
    >>> wrong_counts({"train_samples": -1, "fooled_local": 1e15})["fooled_local"]
    'fooled_local is 1e+15; it must be between 0 and 1000000000'
    """
    wrong: dict[str, str] = {}
    for name, value in metrics.items():
        whole = next((WHOLES[prefix] for prefix in WHOLES if name.startswith(prefix)), "")
        if not whole and not name.endswith("_samples"):
            continue
        if not 0 <= value <= MOST_SAMPLES:
            wrong[name] = f"{name} is {value:g}; it must be between 0 and {MOST_SAMPLES}"
        elif value > metrics.get(whole, MOST_SAMPLES):
            wrong[name] = f"{name} is {value:g}, but {whole} is {metrics[whole]:g}"
    return wrong


def check_counts(metrics: dict[str, float]) -> dict[str, float]:
    """Returns the metrics; raises a validation error if a count is impossible."""
    for reason in wrong_counts(metrics).values():
        raise PydanticCustomError(INVALID_CLAIM, "{reason}", {"reason": reason})
    return metrics
