"""Schedules: how the learning rate of local training goes from round to round.

Within a round the rate stays; a schedule knows the round's number alone, so that a client which
missed some takes the same steps as the others.

To add one: a module here with a subclass of `Schedule` under `@schedules.register("name")`, and a
test file of the same name.
"""

from abc import ABC, abstractmethod

from rampart_fl.shared.families.registry import Member, Registry


class Schedule(Member, ABC):
    """What the learning rate is multiplied by in each round."""

    @abstractmethod
    def share(self, round_: int, rounds: int) -> float:
        """The share of the experiment's learning rate that a round takes.

        Args:
            round_: its number, from 0.
            rounds: of the experiment.
        """


schedules: Registry[Schedule] = Registry(
    Schedule, "schedule", package=__name__, group="rampart_fl.schedules"
)
