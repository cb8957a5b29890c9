"""The cells of a table, each with its experiment or the reason why the cell has no experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rampart_fl.services.console.studies.reproduction.definition import (
    At,
    Definition,
    Scale,
    check_choices,
)
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.run_result import AccuracySource
from rampart_fl.shared.validation import validate


@dataclass(frozen=True)
class TableCell:
    """One cell of a table.

    Args:
        at: the cell's choice on every axis.
        value: the paper's value.
        measure: the metric that the table shows.
        accuracy: the source of the final accuracies; see `AccuracySource`.
        runs: the cell's experiment with each seed; empty if the cell cannot be run.
        reason: why the cell cannot be run; None if the cell can be run.
    """

    at: At
    value: float | None
    measure: str
    accuracy: AccuracySource
    runs: tuple[Experiment, ...] = ()
    reason: str | None = None


def cells(
    definition: Definition, scale: Scale, seeds: int = 3, only: Mapping[str, Sequence[str]] = {}
) -> list[TableCell]:
    """Builds and checks all cells, so that errors are found before the first run.

    Args:
        definition: the table.
        scale: the scale of the runs; `smoke` has one cell with one seed.
        seeds: number of consecutive seeds, beginning with the experiment's seed.
        only: the choices to keep, keyed by axis.
    Raises:
        ConfigurationError: an experiment is wrong, and the message names the cell; or no cell has
            the choices in `only`.
    """
    known = {axis: list(of) for axis, of in definition.axes.items()}
    for axis, choices in only.items():
        check_choices("--only", axis, list(choices), known)
    grid = definition.grid()
    if scale == "smoke":
        grid, seeds = iter([definition.smoke]), 1
    kept = [at for at in grid if all(at[axis] in choices for axis, choices in only.items())]
    if not kept:
        raise ConfigurationError(
            f"no cell of {scale} scale has the choices of --only"
            + (f"; the only cell has {_named(definition.smoke)}" if scale == "smoke" else "")
        )
    return [_cell(definition, at, scale, seeds, only) for at in kept]


def _named(at: At) -> str:
    """The choice of a cell on every axis, for messages."""
    return ", ".join(f"{axis} {choice}" for axis, choice in at.items())


def _cell(
    definition: Definition, at: At, scale: Scale, seeds: int, only: Mapping[str, Sequence[str]]
) -> TableCell:
    value = None if scale == "smoke" else definition.value(at)
    measure = definition.metric(at)
    reason = definition.refusal(at, scale, only)
    if reason is not None:
        return TableCell(at, value, measure, definition.accuracy, reason=reason)
    try:
        first = validate(Experiment.from_tables(definition.tables_of(at, scale)))
    except RampartError as error:
        raise ConfigurationError(f"{_named(at)}: {error}") from None
    runs = (first.model_copy(update={"seed": first.seed + seed}) for seed in range(seeds))
    return TableCell(at, value, measure, definition.accuracy, tuple(runs))
