"""The `phases` table of an experiment: for how many clients each phase waits, and how long."""

from pydantic import Field, model_validator

from rampart_fl.shared.experiment.selection import count
from rampart_fl.shared.experiment.tables import Table


class Span(Table):
    """A lower and an upper limit, on a time or on a number of clients.

    If a limit on a number of clients is at most 1, it is a fraction of the clients whose updates
    the round aggregates.
    """

    min: float = Field(default=0, ge=0)
    max: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> "Span":
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self

    def least(self, of: int) -> int:
        """The lower limit as a number of clients; `of` is the number of clients.

        >>> Span(min=0.8).least(of=9), Span(min=3).least(of=9)
        (8, 3)
        """
        return count(self.min, of)

    def most(self, of: int) -> int:
        """The upper limit as a number of clients; `of` is the number of clients.

        If there is no upper limit, the result is `of`. If `min` is a fraction and `max` is a number
        of clients, `min` can amount to more clients than `max`. In this case, the result is the
        lower limit.

        >>> Span(min=0.8, max=3).most(of=9), Span(min=0.8, max=3).most(of=3)
        (8, 3)
        """
        return of if self.max is None else max(count(self.max, of), self.least(of))


class Joining(Table):
    """How many clients must join before round 0 starts, and how long the run waits for them."""

    clients: int | None = Field(default=None, ge=1)
    """Number of clients that must have joined; `data.clients` by default."""
    deadline: float | None = Field(default=None, gt=0)
    """How long round 0 waits for all required clients, in seconds. After the deadline, round 0
    starts as soon as `clients.least` clients have joined. Without a deadline, round 0 waits until
    all required clients have joined."""


class Collecting(Table):
    """When a round stops collecting updates: once enough updates have arrived, or at a deadline."""

    count: Span = Span(min=0.8)
    """Limits on the number of aggregated updates (sync policy). After `time.min`, the round closes
    as soon as `count.max` updates have arrived. At the deadline `time.max`, the round closes if at
    least `count.min` updates have arrived, and fails otherwise."""
    time: Span = Span(min=0, max=600)
    """Shortest and longest time that a round stays open, in seconds."""


class Phases(Table):
    """For how many clients each phase waits, and how long."""

    joining: Joining = Joining()
    collecting: Collecting = Collecting()
