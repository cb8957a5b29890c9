"""A learning rate that decreases at regular intervals."""

from pydantic import Field

from rampart_fl.shared.learning.training.schedules import Schedule, schedules


@schedules.register("step")
class Step(Schedule):
    """Multiplies the learning rate by a factor every few rounds.

    In round t, the rate is η factor^⌊t / every⌋, where η is the experiment's learning rate.

    >>> [Step(every=2, factor=0.5).share(t, 6) for t in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """

    every: int = Field(ge=1)
    """Number of rounds between two reductions of the learning rate."""
    factor: float = Field(default=0.1, gt=0, le=1)
    """Factor by which the learning rate is multiplied at each reduction."""

    def share(self, round_: int, rounds: int) -> float:
        return self.factor ** (round_ // self.every)
