"""The same learning rate in every round."""

from rampart_fl.shared.learning.training.schedules import Schedule, schedules


@schedules.register("constant")
class Constant(Schedule):
    """Keeps the learning rate constant.

    Every round has the experiment's learning rate η.
    """

    def share(self, round_: int, rounds: int) -> float:
        return 1.0
