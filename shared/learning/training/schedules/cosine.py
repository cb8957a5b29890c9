"""A learning rate that decreases along half a cosine."""

import math

from pydantic import Field

from rampart_fl.shared.learning.training.schedules import Schedule, schedules


@schedules.register("cosine")
class Cosine(Schedule):
    """Lowers the learning rate along half a cosine.

    In round t of T rounds, the rate is η (floor + (1 - floor) (1 + cos(π t / T)) / 2), where η is
    the experiment's learning rate.

    >>> [round(Cosine(floor=0.2).share(t, 4), 3) for t in (0, 2, 4)]
    [1.0, 0.6, 0.2]
    """

    paper = "Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, 2017"
    floor: float = Field(default=0.0, ge=0, le=1)
    """The lowest learning rate, as a fraction of the first learning rate."""

    def share(self, round_: int, rounds: int) -> float:
        wave = (1 + math.cos(math.pi * min(round_ / rounds, 1))) / 2
        return self.floor + (1 - self.floor) * wave
