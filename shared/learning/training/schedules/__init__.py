"""Schedules: how the learning rate of local training changes from round to round.

The rate is constant within a round. A schedule depends only on the round's number and the number of
rounds, so a client that missed some rounds uses the same rate as all other clients.

To add a schedule, write a module in this package, and a test file with the name of the module. The
module defines a subclass of `Schedule`, decorated with `@schedules.register("name")`.

Code that applies the rate to a model belongs in `training`.
"""

from abc import ABC, abstractmethod
from math import inf, nan
from typing import Any

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.registry import FamilyMember, Registry


class Schedule(FamilyMember, ABC):
    """Sets the learning rate of each round, as a multiple of the experiment's learning rate."""

    @abstractmethod
    def share(self, round_: int, rounds: int) -> float:
        """The learning rate of one round, as a multiple of the experiment's learning rate.

        Args:
            round_: the round's number, counted from 0.
            rounds: number of rounds of the experiment.
        """

    def checked_share(self, round_: int, rounds: int) -> float:
        """Calls `share`, and checks the result.

        Raises:
            ConfigurationError: the result is not a finite number of at least 0.
        """
        with self.own_errors():
            given: Any = self.share(round_, rounds)
            share = float(given) if hasattr(given, "__float__") else nan
        if not 0 <= share < inf:
            raise ConfigurationError(
                f"schedule {self.origin} returned {given!r} for round {round_}, not a finite "
                "number of at least 0"
            )
        return share


schedules: Registry[Schedule] = Registry(
    Schedule, "schedule", package=__name__, group="rampart_fl.schedules"
)
