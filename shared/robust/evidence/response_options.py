"""The options of the detector `response`."""

from abc import ABC
from math import ceil
from typing import Annotated, Self

from pydantic import Field, model_validator

from rampart_fl.shared.robust.evidence.challenges import Challenger
from rampart_fl.shared.robust.evidence.sequential import SequentialDetector, Share

Memory = Annotated[float, Field(ge=0, lt=1)]


class ResponseOptions(SequentialDetector, Challenger, ABC):
    """The options of the detector `response`; the class `ResponseDetector` explains them."""

    tolerated: float = Field(default=0.15, gt=0, lt=1)
    """Assumed bound on the probability that the detector objects to an honest client in a round.
    The bound `tolerated` applies only to clients that have a response. In addition, the round's
    responses must be informative (see `informative`), or the client must answer a challenge."""
    tolerated_long: float = Field(default=0.02, gt=0, lt=1)
    """The bound that applies if the bound `tolerated` does not apply, for example in a client's
    first round. If the bound `tolerated_long` applies, the detector does not object to turned
    responses."""
    expected: tuple[Share, ...] = Field(default=(0.35, 0.6, 0.9), min_length=1, max_length=8)
    """Expected shares of rounds in which the detector objects to an attacker. The detector places a
    separate bet on each expected share. A bet on a high share quickly detects an attacker that
    draws an objection in every round. A bet on a low share detects an attacker whose noisy updates
    often draw no objection."""
    memories: tuple[Memory, ...] = Field(default=(0.0, 0.8), min_length=1, max_length=8)
    """Decay factors of exponential moving averages over a client's earlier rounds. The detector
    compares each new round of the client with these averages. A decay factor is the weight of the
    old average when a new round is added. With factor 0, a round is compared only with the client's
    previous round. The detector places a bet for each combination of a factor in `memories` and a
    share in `expected`. The wealth of each bet is an e-process, and the suspicion is the logarithm
    of the mean of all these e-processes."""
    turned: float = Field(default=-0.1, ge=-1, le=0)
    """A response is turned if its correlation is below this number: the change of the upload
    follows the model's movement instead of counteracting it."""
    informative: float = Field(default=0.05, ge=0, le=1)
    """The detector objects to turned responses only in rounds in which the median of the clients'
    correlations is at least this number. If the median is lower, even honest responses may be
    turned."""
    overshoot: float = Field(default=2.0, gt=1)
    """An upload that overshoots undoes more than this multiple of the model's movement, and its
    norm is above the limit that `stretched` sets."""
    stretched: float = Field(default=3.0, gt=1)
    """An upload can overshoot only if its norm is above this multiple of the typical norm. To
    compute the typical norm, the detector takes the largest norm of each client's uploads, and then
    the median over all clients.
    """
    long: float = Field(default=10.0, gt=1)
    """An upload can be too long only if its norm is above this multiple of the typical norm (see
    `stretched`)."""
    spread: float = Field(default=3.0, ge=0)
    """An upload can be too long only if the logarithm of its norm is more than this number of
    deviations above the logarithm of the typical norm. A deviation is the median absolute deviation
    of the logarithms of the clients' largest norms."""
    challenges: bool = True
    """Whether suspects are challenged. If suspects are not challenged, the detector uses suspicion
    as evidence. The detector may then request the eviction of an honest client whose loss has
    negative curvature. In the mode `observe`, the detector challenges no client."""
    spot_checks: float = Field(default=0.0, ge=0, le=1)
    """Largest fraction of a round's clients that are challenged in the next round although they are
    not suspects; their number is rounded up. Only clients whose uploads oppose other clients'
    uploads are spot-checked, and only until their answers have given them enough credit. By
    default, there are no spot checks, because they also challenge many honest clients. The
    `buffered` policy has none, either."""
    strength: float = Field(default=8.0, gt=0)
    """Norm of a suspect's first challenge, as a multiple of the median norm of uploads."""
    decoys: int = Field(default=39, ge=8)
    """Number of decoys. A decoy is drawn like a challenge, but sent to nobody. The answer of an
    upload to its challenge is compared with the answers of the same upload to the decoys."""

    @model_validator(mode="after")
    def _decoys_can_show_an_objection(self) -> Self:
        if self.tolerated * (1 + self.decoys) < 1:
            raise ValueError(
                f"decoys {self.decoys} is too few for tolerated {self.tolerated}: it must be at "
                f"least {ceil(1 / self.tolerated) - 1}"
            )
        return self

    @model_validator(mode="after")
    def _other_rounds_tolerate_less(self) -> Self:
        if self.tolerated_long > self.tolerated:
            raise ValueError(
                f"tolerated_long {self.tolerated_long} is above tolerated {self.tolerated}"
            )
        return self
