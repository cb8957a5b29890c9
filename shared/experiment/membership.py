"""The `clients` table of an experiment: which of a federation's clients are asked to join a run."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from rampart_fl.shared.experiment.tables import Table

LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
LabelKey = Annotated[str, Field(pattern=LABEL)]
"""The key of a client's label, such as `site`."""
LabelValue = Annotated[str, Field(pattern=LABEL)]
"""The value of a client's label, such as `eu`."""
Select = dict[LabelKey, Annotated[list[LabelValue], Field(min_length=1, max_length=64)]]


class Clients(Table):
    """Which clients of the federation take part in the run."""

    select: Select = Field(default={}, max_length=16)
    """The allowed values of a client's labels, keyed by label: `{ site = ["eu", "us"] }`. A client
    must have an allowed value for every label in this table. If the table is empty, every client
    may take part."""
    least: int = Field(default=1, ge=1)
    """After `phases.joining.deadline`, the run starts as soon as this number of clients have
    joined."""

    def eligible(self, labels: Mapping[str, str]) -> bool:
        """Whether a client with these labels may take part.

        >>> wanted = Clients(select={"site": ["eu", "us"]})
        >>> wanted.eligible({"site": "eu", "ward": "3"}), wanted.eligible({"ward": "3"})
        (True, False)
        >>> Clients().eligible({})
        True
        """
        return all(labels.get(key) in values for key, values in self.select.items())
