"""Reads the files that define tables and papers.

A file in `papers` contains what the tables of one paper have in common. A file in `tables` defines
one table, whose axes select choices from the paper's file. The following examples show a file in
`papers`, and then a file in `tables`:

    [experiment]                           # the experiment that all cells change
    [axes.attack.lie]                      # the choice "lie" of the axis "attack"
    change.attackers.0.attack = "lie"      # the choice's change of the experiment
    [[settings]]                           # a further change, for cells with all choices in `at`
    at = { attack = "lie", method = "fedcap" }
    change.server.customizer.phi = 0.2

    paper = "fedcap"                       # a table: its axes, in order, and their choices
    axes = { attack = ["lie", "ipm"], method = ["median", "fedcap"] }
    [values]                               # the paper's values, nested like the axes
    lie = [77.24, 84.95]

Changes are applied in this order: the choices (in the order of the axes), the settings of the
paper's file, and the settings of the table's file. The `at` of a setting can also contain the
key `scale` (`full`, `reduced` or `smoke`), as if the scale were an axis.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rampart_fl.services.console.studies.reproduction.changes import merged
from rampart_fl.services.console.studies.reproduction.definition import (
    Definition,
    Paper,
    check_choices,
)
from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.families.registry import explain

TABLES = Path(__file__).parent / "tables"
PAPERS = Path(__file__).parent / "papers"
HOURS = Path(__file__).parent / "hours.toml"
"""Estimated hours to run each table at each scale, written by `benchmarks/hours.py`."""


def names() -> tuple[str, ...]:
    """Names of all tables."""
    return tuple(sorted(path.stem for path in TABLES.glob("*.toml")))


def hours() -> dict[str, dict[str, float]]:
    """Estimated hours to run each table at each scale, with three seeds on one core."""
    return tomllib.loads(HOURS.read_text(encoding="utf-8"))


def load(name: str) -> Definition:
    """The definition of a table.

    Raises:
        ConfigurationError: there is no such table, or its file is wrong.

    >>> load("fedcap-table-1").columns
    'method'
    """
    path = TABLES / f"{name}.toml"
    if name not in names():
        raise UnknownMember("table", name, names())
    return parse(path.read_text(encoding="utf-8"), path.name)


def parse(text: str, name: str = "definition") -> Definition:
    """Parses a definition from the text of a TOML file.

    Raises:
        ConfigurationError: the file is wrong; the message says where.
    """
    try:
        own = tomllib.loads(text)
        shared = _paper(str(own.get("paper")))
        return Definition.model_validate(_joined(shared, own))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: not a TOML file: {error}") from None
    except ValidationError as error:
        raise ConfigurationError(f"{name}: {explain(error, Definition)}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


@cache
def _paper(name: str) -> dict[str, Any]:
    known = tuple(sorted(path.stem for path in PAPERS.glob("*.toml")))
    if name not in known:
        raise UnknownMember("paper", name, known)
    tables = tomllib.loads((PAPERS / f"{name}.toml").read_text(encoding="utf-8"))
    Paper.model_validate(tables)
    return tables


def _joined(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merges the definition of a table with the definition of its paper."""
    library, axes = dict(shared["axes"]), dict[str, Any]()
    for axis, choices in own.get("axes", {}).items():
        if isinstance(choices, list):
            known = library.get(axis, {})
            for choice in choices:
                check_choices("axes", axis, [choice], {of: list(c) for of, c in library.items()})
            axes[axis] = {choice: known[choice] for choice in choices}
        else:
            axes[axis] = choices
            library[axis] = {**library.get(axis, {}), **choices}
    joined = {
        **own,
        "experiment": merged(shared["experiment"], own.get("experiment", {})),
        "axes": axes,
        "library": library,
    }
    for place in ("settings", "impossible", "on_request"):
        joined[place] = [*shared.get(place, []), *own.get(place, [])]
    if "accuracy" in shared:
        joined.setdefault("accuracy", shared["accuracy"])
    joined["notes"] = [*own.get("notes", []), *shared.get("notes", [])]
    return joined
