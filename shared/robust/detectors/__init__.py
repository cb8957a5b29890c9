"""Detectors: one verdict per row, with its evidence.

To add one: a module here with a subclass of `Detector` under `@detectors.register("name")`, and a
test file of the same name.
"""

from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import Asked, Detector, Verdict

detectors: Registry[Detector] = Registry(
    Detector, "detector", package=__name__, group="rampart_fl.detectors"
)


def judged(
    detector: Detector,
    client: str,
    score: float,
    threshold: float,
    objection: Asked | None,
    reason: str,
) -> Verdict:
    """The verdict `objection`, or that the client is accepted where there is none.

    `reason` says how the score relates to the threshold, with the two filled in as {0} and {1}.
    """
    return Verdict(
        client=client,
        decision=objection or "accepted",
        detector=detector.name,
        score=score,
        threshold=threshold,
        reason=reason.format(f"{score:.4g}", f"{threshold:g}"),
    )
