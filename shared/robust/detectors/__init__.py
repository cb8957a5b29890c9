"""Detectors give every row a verdict, and state the evidence for this verdict.

To add a detector, write a module in this package, and a test file with the name of the module. The
module defines a subclass of `Detector`, decorated with `@detectors.register("name")`.

Code that turns rows into one vector belongs in `rules`, and code that turns rows into other rows
belongs in `preaggregators`. Code that decides whether a verdict bars a client belongs in
`rampart_fl.shared.robust.eviction`.
"""

from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import Detector, RequestedDecision, Verdict

detectors: Registry[Detector] = Registry(
    Detector, "detector", package=__name__, group="rampart_fl.detectors"
)


def verdict_for(
    detector: Detector,
    client: str,
    score: float,
    threshold: float,
    objection: RequestedDecision | None,
    reason: str,
) -> Verdict:
    """A verdict with the decision `objection`, or `accepted` if `objection` is None.

    `reason` states how the score compares with the threshold. The score and the threshold replace
    the placeholders {0} and {1} in `reason`.
    """
    return Verdict(
        client=client,
        decision=objection or "accepted",
        detector=detector.name,
        score=score,
        threshold=threshold,
        reason=reason.format(f"{score:.4g}", f"{threshold:g}"),
    )
