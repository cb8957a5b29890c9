"""A sweep: a file that defines many experiments, one per grid point and seed.

    [sweep]
    runs = 20                                                   # seeds: seed, seed + 1, ...
    personalizer.lambda = { from = 0, to = 1, step = 0.05 }     # includes both ends
    server.rule = ["median", ["nnm", "krum"]]                   # a list of any values
    attackers.0.count = { values = [0, 2, 4], also = ["server.f"] }     # both settings change

The path of a parameter, such as `server.rule`, names an axis. If the file lacks a table on the
path, the sweep adds the table. For example, the path `training.privacy.clip` adds the table
`training.privacy`. If there are several axes, the grid has every combination of their values. To
choose the seeds yourself, set `seeds = [...]` instead of `runs`.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pydantic import Field, ValidationError, model_validator

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Experiment, Table
from rampart_fl.shared.experiment.shipped import find, text_of
from rampart_fl.shared.families.registry import explain

DIGITS = 10
"""Number of decimals to which the numbers of a range are rounded, so that 0.1 + 0.2 is 0.3."""


class Values(Table):
    """The values of one axis: a list, or a range of numbers."""

    values: list[Any] = Field(default=[])
    start: float | None = Field(default=None, alias="from")
    to: float | None = None
    step: float | None = Field(default=None, gt=0)
    count: int | None = Field(default=None, ge=2)
    """Number of values of the range; an alternative to `step`."""
    also: list[str] = Field(default=[])
    """Paths of further parameters, each of which gets the same value as the axis's parameter."""

    @model_validator(mode="after")
    def _one_way(self) -> "Values":
        ranged = [self.start is not None, self.to is not None]
        if bool(self.values) == any(ranged) or any(ranged) != all(ranged):
            raise ValueError("give `values`, or `from` and `to` with either `step` or `count`")
        if any(ranged) and (self.step is None) == (self.count is None):
            raise ValueError("a range needs `step` or `count`")
        if not any(ranged) and (self.step is not None or self.count is not None):
            raise ValueError("`step` and `count` need `from` and `to`, not `values`")
        if self.start is not None and self.to is not None and self.start > self.to:
            raise ValueError(f"from = {self.start:g} is above to = {self.to:g}")
        if self.count is not None and self.start == self.to:
            raise ValueError(f"from = to = {self.start:g} is one value, not count = {self.count}")
        values = self.all()
        for at, value in enumerate(values):
            if value in values[:at]:
                raise ValueError(f"the value {value!r} is listed twice")
        return self

    def all(self) -> list[Any]:
        """All values of the axis, in order.

        >>> Values(**{"from": 0, "to": 0.3, "step": 0.1}).all()
        [0.0, 0.1, 0.2, 0.3]
        >>> Values(**{"from": 4, "to": 8, "count": 3}).all()
        [4, 6, 8]
        """
        if self.start is None or self.to is None:
            return list(self.values)
        step = self.step or (self.to - self.start) / ((self.count or 2) - 1)
        number = int((self.to - self.start) / step + 1 + 1e-9)
        values = [round(self.start + i * step, DIGITS) for i in range(number)]
        whole = all(value == int(value) for value in (self.start, self.to, *values))
        return [int(value) for value in values] if whole else values


@dataclass(frozen=True)
class Axis:
    """One axis of the grid: the settings that vary together, and their values.

    Args:
        key: the axis's name in results. The name is the last part of the axis's first path; parts
            that are numbers are skipped. If two axes would get the same name, the whole first path
            of each axis is its name.
        paths: the paths of the settings that get the value; dots separate the parts of a path.
        values: the axis's values in order.
    """

    key: str
    paths: tuple[str, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid.

    Args:
        at: the value of each axis, keyed by `Axis.key`.
        runs: one experiment for each seed.
    """

    at: dict[str, Any]
    runs: tuple[Experiment, ...]


@dataclass(frozen=True)
class Sweep:
    """All experiments that a file with a [sweep] table defines.

    Args:
        base: the experiment that the file defines without its [sweep] table.
        axes: the parameters that vary; the last axis varies fastest.
        seeds: the seeds of the runs at every point.
    """

    base: Experiment
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]

    @staticmethod
    def load(source: str | Path, **changes: Any) -> "Sweep | None":
        """Reads the sweep in a file or shipped experiment; returns None if there is no [sweep].

        Args:
            source: the path of a file, or the name of a shipped experiment.
            changes: top-level settings that replace the settings of the file.
        Raises:
            ConfigurationError: the file does not exist, is not TOML, or contains an error; the
                message names the cause.
        """
        path = find(source)
        try:
            tables = Experiment.tables_of(text_of(path))
            if "sweep" not in tables:
                return None
            sweep = Sweep.of({**tables, **changes})
            varied = {path for axis in sweep.axes for path in axis.paths}
            if "seeds" in tables["sweep"]:
                varied.add("seed")
            for name in varied & changes.keys():
                raise ConfigurationError(f"the file's [sweep] sets {name}: change {name} there")
            return sweep
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @staticmethod
    def of(tables: Mapping[str, Any]) -> "Sweep":
        """Makes a sweep from a file's nested dictionaries, which include the table "sweep"."""
        rest = {name: table for name, table in tables.items() if name != "sweep"}
        if not isinstance(tables["sweep"], Mapping):
            raise ConfigurationError("sweep: a table of parameters and their values is needed")
        base, table = Experiment.from_tables(rest), dict(tables["sweep"])
        named = _seeds(base.seed, table.pop("runs", None), table.pop("seeds", None))
        seeds = tuple(Experiment.from_tables({**rest, "seed": seed}).seed for seed in named)
        leaves = list(_leaves(table))
        if not leaves:
            raise ConfigurationError("sweep: there is no axis; name a parameter and its values")
        if any("seed" in (path, *values.also) for path, values in leaves):
            raise ConfigurationError("sweep: `seed` cannot be an axis; give `seeds` or `runs`")
        _refuse_overwriting([path for first, values in leaves for path in (first, *values.also)])
        names = Counter(_name(path) for path, _ in leaves)
        axes = tuple(
            Axis(
                _name(path) if names[_name(path)] == 1 else path,
                (path, *values.also),
                tuple(values.all()),
            )
            for path, values in leaves
        )
        return Sweep(base, axes, seeds)

    def points(self, check: Callable[[Experiment], object]) -> list[GridPoint]:
        """Builds and checks every point, so that errors are reported before anything runs.

        Args:
            check: usually `rampart_fl.validate`. A point's runs differ only in their seeds, so
                `check` is called only with the first run of each point.
        Raises:
            ConfigurationError: there is no setting at a path, or a value is not allowed.
            RampartError: `check` refuses a point.
        """
        points = []
        for point in self._points():
            check(point.runs[0])
            points.append(point)
        return points

    def _points(self) -> Iterator[GridPoint]:
        for values in product(*(axis.values for axis in self.axes)):
            tables = self.base.tables()
            for axis, value in zip(self.axes, values, strict=True):
                for path in axis.paths:
                    put(tables, path, value)
            first = Experiment.from_tables({**tables, "seed": self.seeds[0]})
            runs = tuple(first.model_copy(update={"seed": seed}) for seed in self.seeds)
            keys = (axis.key for axis in self.axes)
            yield GridPoint(dict(zip(keys, values, strict=True)), runs)

    def digest(self) -> str:
        """SHA-256 over the digests of all experiments of the sweep."""
        parts = [run.digest() for point in self._points() for run in point.runs]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _seeds(first: int, runs: Any, seeds: Any) -> tuple[int, ...]:
    """The seeds of the runs at every point of the grid."""
    if runs is not None and seeds is not None:
        raise ConfigurationError("sweep: give `runs` or `seeds`, not both")
    if runs is None and seeds is None:
        return (first,)
    if type(runs) is int and runs > 0:
        return tuple(range(first, first + runs))
    listed = seeds if isinstance(seeds, list) else []
    if not listed or len(set(map(str, listed))) < len(listed):
        raise ConfigurationError(
            "sweep: `runs` must be a whole number of at least 1, "
            "and `seeds` a list of distinct whole numbers"
        )
    return tuple(listed)


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Values]]:
    """The path and the values of each axis of a [sweep]."""
    for name, value in table.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, list):
            value = {"values": value}
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"sweep: {here}: a list of values, or a range, is needed")
        if {"values", "from", "to"}.isdisjoint(value):
            yield from _leaves(value, here)
            continue
        try:
            yield here, Values.model_validate(value)
        except ValidationError as error:
            raise ConfigurationError(f"sweep: {here}: {explain(error, Values)}") from None


def _refuse_overwriting(paths: Sequence[str]) -> None:
    """Refuses a path that sets a parameter again, because results would name both values."""
    for at, path in enumerate(paths):
        for earlier in paths[:at]:
            if f"{earlier}.".startswith(f"{path}."):
                raise ConfigurationError(
                    f"sweep: {path} would overwrite {earlier}; set each parameter only once"
                )


def _name(path: str) -> str:
    """The last non-numeric part of a path."""
    return next((part for part in reversed(path.split(".")) if not part.isdigit()), path)


def put(tables: dict[str, Any], path: str, value: Any) -> None:
    """Sets the parameter at a dotted path in an experiment's nested dictionaries.

    If the experiment lacks a table on the path, this table is created. If the new table is unknown
    or incomplete, the validation of the experiment reports an error.

    Raises:
        ConfigurationError: the path names an entry that a list lacks, or leads into a value that is
            neither a table nor a list.

    >>> tables = {"server": {"rule": [{"name": "krum"}], "root": None}}
    >>> put(tables, "server.rule.0.f", 3)
    >>> put(tables, "server.root.size", 50)
    >>> tables
    {'server': {'rule': [{'name': 'krum', 'f': 3}], 'root': {'size': 50}}}
    """
    place: Any = tables
    way = path.split(".")
    for depth, part in enumerate(way):
        here = ".".join(way[:depth])
        if isinstance(place, list):
            key: int | str = _index(place, part, here, path)
        elif isinstance(place, dict):
            key = part
        else:
            raise ConfigurationError(f"{path}: {here} is {place!r}, which has no keys")
        if depth == len(way) - 1:
            place[key] = value
        elif isinstance(place, dict) and place.get(part) is None:
            place[part] = {}
        place = place[key]


def _index(entries: Sequence[Any], part: str, here: str, path: str) -> int:
    """Converts the part `part` of `path` to an index of the list at the path `here`."""
    if part.isdecimal() and int(part) < len(entries):
        return int(part)
    last = len(entries) - 1
    held = f"the entries 0 to {last}" if last > 0 else "one entry, 0" if entries else "no entries"
    raise ConfigurationError(f"{path}: no entry {part!r}: {here} has {held}")


def averaged(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Averages the metrics of several runs; the key "spread" has the standard deviations.

    A mean is taken over the runs that have the metric; if no run has the metric, the mean is None.
    If a metric is a list, its length is averaged; if a metric is a string, it is left out. If at
    least two runs have a metric, "spread" has the metric's sample standard deviation.

    >>> averaged([{"error": 1.0, "evicted": ["a"]}, {"error": 3.0, "evicted": []}])
    {'error': 2.0, 'evicted': 0.5, 'runs': 2, 'spread': {'error': 1.41..., 'evicted': 0.70...}}
    """
    means: dict[str, Any] = {}
    spread: dict[str, float] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if run.get(name) is not None]
        if values and isinstance(values[0], Mapping):
            means[name] = {
                part: value
                for part, value in averaged(values).items()
                if part not in ("runs", "spread")
            }
            continue
        if any(isinstance(value, str) for value in values):
            continue
        numbers = [float(len(v) if isinstance(v, list) else v) for v in values]
        means[name] = fmean(numbers) if numbers else None
        if len(numbers) > 1:
            spread[name] = stdev(numbers)
    return {**means, "runs": len(runs), "spread": spread}
