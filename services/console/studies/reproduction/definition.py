"""A table or a figure of a paper: its axes, the cells' experiments, and the paper's own values."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import isnan
from typing import Any, Literal

from pydantic import Field, model_validator

from rampart_fl.services.console.studies.reproduction.changes import merged
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.tables import Table
from rampart_fl.shared.figures.run_result import AccuracySource

Scale = Literal["full", "reduced", "smoke"]
SCALES: tuple[Scale, ...] = ("full", "reduced", "smoke")
ROUNDS = "rounds"
"""The value of `Figure.along` if the figure's horizontal axis shows the rounds of a run. No table
has an axis with the name `rounds`."""
At = dict[str, str]
"""The choice on each of several axes, keyed by axis."""


class Choice(Table):
    """One value of an axis, such as one attack."""

    label: str = ""
    """The choice's label in the table; by default, the choice's key."""
    change: dict[str, Any] = {}
    """Changes that this choice makes to the experiment."""
    measure: str | None = None
    """The metric that the table shows for this choice; by default, the table's `measure`."""


class CellSelector(Table):
    """Selects a cell if its choice on each axis in `at` is one of the choices that `at` lists."""

    at: dict[str, str | list[str]] = {}

    def holds(self, at: Mapping[str, str]) -> bool:
        """Whether this selector selects a cell; the argument `at` contains the cell's choices."""
        return all(at.get(axis) in _listed(wanted) for axis, wanted in self.at.items())


class CellSettings(CellSelector):
    """Changes to the experiments of the selected cells."""

    change: dict[str, Any]


class ImpossibleCells(CellSelector):
    """Cells that cannot be run."""

    reason: str


class OnRequest(CellSelector):
    """Cells that the scale `reduced` leaves out, unless the user selects them with --only.

    With these cells, the table would take more than an hour on two cores at the scale `reduced`.
    """

    def requested(self, only: Mapping[str, Sequence[str]]) -> bool:
        """Whether the user has selected at least one of the choices in the field `at`."""
        return any(set(_listed(wanted)) & set(only.get(a, ())) for a, wanted in self.at.items())

    def reason(self, at: At) -> str:
        """Why a cell is left out, and the option that runs the cell."""
        axis = list(self.at)[-1]
        return f"left out to save time; run it with --only {axis}={at[axis]}"


class Figure(Table):
    """Describes how the values of the table's cells are drawn as curves."""

    along: str
    """Horizontal axis: an axis of the table, or `rounds`."""
    panels: str | None = None
    """The axis whose choices are drawn in separate panels."""
    measures: list[str] = Field(default=[])
    """The metrics that are drawn; by default, the metric that the table shows. Each metric has its
    own panel, unless `together` is set."""
    together: bool = False
    """Whether all metrics of a run are drawn as lines in one panel."""


class Paper(Table):
    """What the tables of one paper have in common."""

    title: str
    notes: list[str] = []
    """Notes that apply to all tables of the paper, such as deviations from the paper."""
    experiment: dict[str, Any]
    axes: dict[str, dict[str, Choice]]
    """All choices of each axis."""
    accuracy: AccuracySource = "last"
    """The source of the final accuracies."""
    settings: list[CellSettings] = []
    impossible: list[ImpossibleCells] = []
    on_request: list[OnRequest] = []


class Definition(Paper):
    """A table or a figure of a paper, together with what all tables of the paper have in common."""

    paper: str
    measure: str = "accuracy"
    """The metric that the table shows. Shares are in percent; other metrics keep their unit."""
    axes: dict[str, dict[str, Choice]] = Field(min_length=1)
    """The choices of each axis; the last axis makes the columns."""
    fixed: At = {}
    """The choices that all cells share, for the axes of the paper that are not axes of the
    table."""
    smoke: At
    """The cell that the scale `smoke` runs."""
    values: dict[str, Any] = {}
    """The paper's values: TOML tables nested in the order of the axes, with a list for the last
    axis. The value nan marks a cell for which the paper has no value."""
    figure: Figure | None = None
    library: dict[str, dict[str, Choice]]
    """All choices of each axis, from the paper's file and from the table's file."""

    @model_validator(mode="after")
    def _known(self) -> "Definition":
        known = {axis: list(of) for axis, of in self.library.items()} | {"scale": [*SCALES]}
        selectors: dict[str, Sequence[CellSelector]] = {
            "settings": self.settings,
            "impossible": self.impossible,
            "on_request": self.on_request,
        }
        for place, some in selectors.items():
            for number, one in enumerate(some):
                for axis, wanted in one.at.items():
                    check_choices(f"{place}.{number}.at", axis, _listed(wanted), known)
        for axis, choice in self.fixed.items():
            check_choices("fixed", axis, [choice], known)
        own = {axis: list(of) for axis, of in self.axes.items()}
        for axis, choice in self.smoke.items():
            check_choices("smoke", axis, [choice], own)
        if missing := self.axes.keys() - self.smoke.keys():
            raise ValueError(f"smoke: a choice is missing for {', '.join(sorted(missing))}")
        if self.figure is not None:
            for named in {self.figure.along, self.figure.panels} - {ROUNDS, None}:
                check_choices("figure", str(named), [], own)
        _check_values(self.values, list(own.values()), "values")
        return self

    @property
    def columns(self) -> str:
        """The axis whose choices are the columns."""
        return list(self.axes)[-1]

    def grid(self) -> Iterator[At]:
        """Every combination of choices; the last axis varies fastest."""
        for picked in product(*self.axes.values()):
            yield dict(zip(self.axes, picked, strict=True))

    def label(self, axis: str, choice: str) -> str:
        """The label of a choice in the table."""
        return self.axes[axis][choice].label or choice

    def value(self, at: At) -> float | None:
        """The paper's value of a cell; None if the paper has none."""
        here: Any = self.values
        *outer, last = self.axes
        for axis in outer:
            here = here.get(at[axis], {})
        if not here:
            return None
        value = float(here[list(self.axes[last]).index(at[last])])
        return None if isnan(value) else value

    def metric(self, at: At) -> str:
        """The metric that the table shows for a cell.

        If several of the cell's choices have a `measure`, the last `measure` is used. If no choice
        has a `measure`, the table's `measure` is used.
        """
        own = [choice.measure for choice in self._choices(at) if choice.measure]
        return own[-1] if own else self.measure

    def tables_of(self, at: At, scale: Scale) -> dict[str, Any]:
        """The experiment of a cell, as TOML tables for `Experiment.from_tables`."""
        here = {**self.fixed, **at, "scale": scale}
        changes = [choice.change for choice in self._choices(at)]
        changes += [setting.change for setting in self.settings if setting.holds(here)]
        tables: dict[str, Any] = self.experiment
        for change in changes:
            tables = merged(tables, change)
        return tables

    def refusal(self, at: At, scale: Scale, only: Mapping[str, Sequence[str]] = {}) -> str | None:
        """Why a cell is not run; None if it is run.

        Args:
            at: the cell.
            scale: the scale of the runs.
            only: the choices that the user has selected, keyed by axis.
        """
        here = {**self.fixed, **at, "scale": scale}
        for barred in self.impossible:
            if barred.holds(here):
                return barred.reason
        for some in self.on_request:
            if scale == "reduced" and some.holds(here) and not some.requested(only):
                return some.reason(here)
        return None

    def _choices(self, at: At) -> list[Choice]:
        return [self.library[axis][choice] for axis, choice in {**self.fixed, **at}.items()]


def _listed(wanted: str | list[str]) -> list[str]:
    return [wanted] if isinstance(wanted, str) else wanted


def check_choices(place: str, axis: str, wanted: list[str], known: Mapping[str, list[str]]) -> None:
    """Refuses an axis or choices that are not in `known`; the error message starts with `place`."""
    if axis not in known:
        raise ConfigurationError(f"{place}: there is no axis {axis!r}; axes: {', '.join(known)}")
    for choice in wanted:
        if choice not in known[axis]:
            raise ConfigurationError(
                f"{place}: {axis} has no choice {choice!r}; choices: {', '.join(known[axis])}"
            )


def _check_values(values: Any, axes: list[list[str]], place: str) -> None:
    if len(axes) == 1 and (values or place != "values"):
        if not isinstance(values, list) or len(values) != len(axes[0]):
            raise ValueError(f"{place}: a list of {len(axes[0])} numbers is needed")
        if not all(isinstance(value, int | float) for value in values):
            raise ValueError(f"{place}: only numbers, or nan, are allowed")
        return
    for choice, inner in values.items():
        check_choices(place, "here", [choice], {"here": axes[0]})
        _check_values(inner, axes[1:], f"{place}.{choice}")
