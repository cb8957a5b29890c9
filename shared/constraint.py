"""A constraint between the parts of an experiment, and the error if the parts break it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rampart_fl.shared.built_experiment import BuiltExperiment
from rampart_fl.shared.errors import ConfigurationError


@dataclass(frozen=True)
class Constraint:
    """One constraint: a row of the table `rampart_fl.shared.validation.CONSTRAINTS`.

    Args:
        holds: the constraint in words.
        broken_by: returns the names of the stages or settings that break the constraint, or nothing
            if the constraint holds.
        message: the error message for the user. The message may contain four placeholders. The
            placeholder {culprit} is the first name that `broken_by` returns, and {culprits} are all
            names that it returns. The other two, {customizer} and {personalizer}, are the names of
            the experiment's customizer and personalizer.
    """

    holds: str
    broken_by: Callable[[BuiltExperiment], Iterable[str]]
    message: str

    def check(self, built: BuiltExperiment) -> None:
        """Raises `ConfigurationError` if the members violate the constraint."""
        culprits = list(self.broken_by(built))
        if culprits:
            raise ConfigurationError(
                self.message.format(
                    culprit=culprits[0],
                    culprits=", ".join(culprits),
                    customizer=built.customizer.name,
                    personalizer=built.personalizer.name,
                )
            )
