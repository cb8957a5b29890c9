"""Why the detector `response` objects to an upload.

Legend: M uploads of the round, K numbers of a sketch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.robust.evidence.answers import Answer
from rampart_fl.shared.robust.evidence.client_memory import Start
from rampart_fl.shared.robust.evidence.responses import PULLS, Response

BEYOND = 5.0
"""The limit on the norms of uploads is multiplied by this factor if the client may have far more
data than other clients."""
DEVIATIONS = 3.0
"""A response is turned only if its correlation is at least this many standard deviations below 0.
The standard deviation is that of the correlation between two random directions."""
AGREES = 0.05
"""An upload agrees with other clients' uploads if its median cosine with these uploads is above
this number."""


@dataclass(frozen=True)
class CohortLimits:
    """The typical values and limits with which the uploads of a round are compared.

    Args:
        length: the typical norm, that is, the median over all clients of each client's largest
            upload norm.
        most: limit on the norms of uploads, as a multiple of `length`.
        informative: for each of the detector's memories, whether turned responses count. They count
            if the median of the clients' correlations is high enough (`is_informative`).
        turned: the detector objects to responses whose correlation is below this number.
        chance: limit on `Answer.chance`; an answer with a `chance` at or below this limit is
            turned.
        overshoot: an upload overshoots if the strength of its response is above this number and its
            norm is above the limit that `stretched` sets.
        stretched: an upload can overshoot only if its norm is above this multiple of `length`.
    """

    length: float
    most: float
    informative: tuple[bool, ...]
    turned: float
    overshoot: float
    stretched: float
    chance: float

    @property
    def longest(self) -> float:
        """The limit on the norms of uploads."""
        return self.most * self.length

    def times(self, length: float) -> float:
        """The norm of an upload (`length`), divided by the typical norm (`self.length`)."""
        if self.length > 0:
            return length / self.length
        return inf if length else 0.0


Responses = tuple[Response | None, ...]
"""A client's responses in one round, one for each of the detector's memories."""
Objection = Literal["", "too long", "turned", "overshoots"]


@dataclass(frozen=True)
class Upload:
    """The facts about an upload that settle the bets against its client.

    Args:
        times: the upload's norm, divided by the typical norm (`CohortLimits.length`).
        responses: the client's responses, one for each of the detector's memories.
        start: the kind of model that the upload started from.
        passive: True if the detector challenges no clients. The detector then bets on every upload,
            even on the uploads of suspects.
        agrees: whether the upload points in the direction of most other clients' uploads.
        answer: the answer to the client's challenge, if the upload started from a challenged model.
    """

    times: float
    responses: Responses
    start: Start
    passive: bool
    agrees: bool = False
    answer: Answer | None = None

    @property
    def counts(self) -> bool:
        """Whether the detector bets on this upload even if the client is a suspect."""
        return self.passive or self.start == "challenged"


def objection_to(
    upload: Upload, response: Response | None, informative: bool, usual: CohortLimits
) -> Objection:
    """The objection to an upload; "" if there is no objection.

    Args:
        upload: the upload.
        response: the client's response, relative to the moving averages of one of the detector's
            `memories`; None if there is no response.
        informative: whether turned responses count in this round.
        usual: the typical values and limits with which the upload is compared.

    >>> usual = CohortLimits(1.0, 10.0, (True,), -0.1, overshoot=2.0, stretched=3.0, chance=0.15)
    >>> response = Response(correlation=-0.3, strength=-0.2)
    >>> objection_to(Upload(1.0, (response,), "usual", True), response, True, usual)
    'turned'
    """
    if upload.times > usual.most and not plausible(upload, response, usual):
        return "too long"
    if response is None:
        return ""
    if is_turned(upload, response, informative, usual):
        return "turned"
    if upload.times > usual.stretched and overshoots(upload, response, usual):
        return "overshoots"
    return ""


def is_turned(upload: Upload, response: Response, informative: bool, usual: CohortLimits) -> bool:
    """Whether a response is turned: the client pushes the model further instead of pulling it back.

    If the upload answers a challenge, only this answer decides whether the response is turned.
    """
    if upload.answer is not None:
        return upload.answer.chance <= usual.chance
    return informative and response.correlation < usual.turned


def overshoots(upload: Upload, response: Response, usual: CohortLimits) -> bool:
    """Whether an upload undoes more than `overshoot` times the movement of the model.

    An upload that answers a challenge overshoots only if it also undoes more than `overshoot` times
    the challenge.
    """
    if upload.answer is not None and upload.answer.strength <= usual.overshoot:
        return False
    return response.strength > usual.overshoot and response.correlation > PULLS


def undoes_challenge(upload: Upload, usual: CohortLimits) -> bool:
    """Whether an upload clearly undoes its challenge, but at most `overshoot` times the challenge.

    The rank of a clear answer is among the highest fraction `usual.chance` of all ranks.
    """
    answer = upload.answer
    if answer is None:
        return False
    return answer.height <= usual.chance and 0 < answer.strength <= usual.overshoot


def follows_movement(upload: Upload, usual: CohortLimits) -> bool:
    """Whether an upload changes in the direction in which its starting model moved.

    A challenge counts as part of the movement. The detector may reject such an upload if a suspect
    sent it. But the upload is no evidence of an attack, because the loss may have negative
    curvature along the movement.
    """
    return any(
        informative and response is not None and response.correlation < usual.turned
        for response, informative in zip(upload.responses, usual.informative, strict=True)
    )


def plausible(upload: Upload, response: Response | None, usual: CohortLimits) -> bool:
    """Whether an upload above the limit on norms may come from a client with far more data.

    A client with far more data takes far more steps, and all steps have a similar direction. If the
    client is challenged, these steps also undo the challenge, so an upload that clearly undoes its
    challenge is plausible. An upload without a response, for example a client's first upload, is
    plausible if it is finite and the client was not challenged. If the loss has negative curvature,
    an honest client's response may be strongly turned, but its upload still agrees with other
    clients' uploads. A strongly turned response is therefore plausible if the upload agrees with
    these uploads.
    """
    if response is None:
        return isfinite(upload.times) and upload.start == "usual"
    if undoes_challenge(upload, usual):
        return True
    least = -inf if upload.agrees else -usual.overshoot
    return response.steady and least <= response.strength <= usual.overshoot


def acceptable(
    upload: Upload, objections: Sequence[Objection], usual: CohortLimits, suspected: bool = False
) -> bool:
    """Whether an upload's norm is small enough; the limit depends on the objections to the upload.

    If the client is challenged, the norm of its upload must not exceed the limit. If the client is
    not challenged, the limit is `BEYOND` times as high in two cases. First case: there is no
    objection to the upload, and the upload has a response for each memory, so it is not the
    client's first upload. Second case: the upload agrees with other uploads, its client is not a
    suspect, and no response is stronger than `overshoot`.
    """
    excused = upload.agrees and not suspected
    for response in upload.responses:
        excused = excused and (response is None or response.strength <= usual.overshoot)
    fine = excused or (all(upload.responses) and not any(objections))
    trusted = fine and upload.start == "usual"
    return upload.times <= usual.most * (BEYOND if trusted else 1.0)


def typical(longest: Sequence[float], long: float, spread: float) -> tuple[float, float]:
    """The typical norm of uploads, and the limit on norms as a multiple of the typical norm.

    The typical norm is the median of `longest`. The limit is max(`long`, exp(`spread` m)), where m
    is the median absolute deviation of the logarithms of `longest`. For both medians, norms that
    agree in their first six significant digits count only once.

    Args:
        longest: largest norm of each client's uploads; zeros are ignored.
        long: lower bound on the limit.
        spread: number of median absolute deviations in the limit.

    >>> typical([1.0, 2.0, 2.0, 4.0], long=5.0, spread=1.0)
    (2.0, 5.0)
    """
    lengths = {f"{length:.6g}": length for length in longest if length > 0}.values()
    if not lengths:
        return 0.0, long
    middle = median(lengths)
    deviation = median(abs(log(length / middle)) for length in lengths)
    return middle, max(long, exp(min(spread * deviation, 700.0)))


def is_informative(correlations: Iterable[float | None], least: float) -> bool:
    """Whether turned responses count: they count if the median correlation is at least `least`."""
    given = [one for one in correlations if one is not None]
    return bool(given) and median(given) >= least


def agreements(upload_MK: Tensor, followed: Sequence[bool]) -> list[float]:
    """Each upload's median cosine with the other uploads in `followed`; 0 if there are no others.

    A minority of the other clients cannot control the median.

    Args:
        upload_MK: sketches of the uploads.
        followed: for each upload, whether other uploads are compared with it.

    >>> agreements(torch.tensor([[1.0, 0.0], [1.0, 1.0], [-3.0, 0.0]]), [True, True, False])
    [0.7071..., 0.7071..., -0.8535...]
    """
    direction_MK = torch.nn.functional.normalize(upload_MK.double(), dim=1)
    cosine_MM = direction_MK @ direction_MK.T
    others_MM = torch.tensor(followed).repeat(len(followed), 1).fill_diagonal_(False)
    return [
        float(cosine_M[others_M].quantile(0.5)) if bool(others_M.any()) else 0.0
        for cosine_M, others_M in zip(cosine_MM, others_MM, strict=True)
    ]
