"""The report of a matrix of attacks and defences."""

from collections.abc import Mapping
from typing import Any

from rampart_fl.services.console.html_report.markup import Html, section, table, tag
from rampart_fl.services.console.html_report.page import code, facts, page
from rampart_fl.services.console.studies.matrix_figures import FIGURES, SeedMean

BETTER_HIGH = ("accuracy", "dacc")
"""Prefixes of metrics' names; high values of these metrics are good for the defence."""


def matrix_report(content: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The report of a matrix as an HTML file.

    Args:
        content: the content of `matrix.json`.
        digests: SHA-256 of the files that were read.
    """
    cells = {(cell["attack"], cell["defence"]): cell for cell in content["cells"]}
    about = (
        "Every attack against every defence. Percent over the honest clients: mean ± standard "
        "deviation over seeds; a dash means that there is no value."
    )
    names = {
        key.capitalize(): value
        for key, value in content.items()
        if key not in {"experiment", "attacks", "defences", "cells"}
    }
    known = [f for f in FIGURES if any(cell.get(f) is not None for cell in cells.values())]
    return page(
        "Matrix",
        content["experiment"],
        about,
        [
            section("What ran", facts(names), _files(digests)),
            *(_figure(name, cells, content["attacks"], content["defences"]) for name in known),
            *_failures(cells.values()),
            _runs(cells.values()),
        ],
    )


def _figure(name: str, cells: Mapping[tuple[str, str], Any], attacks: Any, defences: Any) -> Html:
    filled = [d for d in defences if any(cells[a, d].get(name) is not None for a in attacks)]
    rows = []
    for attack in attacks:
        row = [tag("td", attack, class_="name")]
        for defence in filled:
            cell = cells[attack, defence]
            value = cell.get(name)
            mean = None if value is None else SeedMean(value, cell["spread"].get(name))
            row.append(tag("td", mean or "-", class_=f"heat {_heat(name, value)}"))
        rows.append(row)
    return section(FIGURES[name], table(["Attack", *filled], rows, range(1, len(filled) + 1)))


def _heat(name: str, value: float | None) -> str:
    """The CSS class that colours a cell: from `heat0` (bad for the defence) to `heat10` (good).

    >>> _heat("accuracy_local", 0.97), _heat("fpr", 0.5)
    ('heat10', 'heat5')
    """
    if value is None:
        return ""
    good = value if name.startswith(BETTER_HIGH) else 1 - value
    return f"heat{round(10 * min(max(good, 0.0), 1.0))}"


def _failures(cells: Any) -> list[Html]:
    failed = [
        tag("li", f"{cell['attack']} / {cell['defence']}, seed {run['seed']}: {run['error']}")
        for cell in cells
        for run in cell["runs"]
        if isinstance(run.get("error"), str)
    ]
    return [section("Failed runs", tag("ul", failed))] if failed else []


def _runs(cells: Any) -> Html:
    rows = [
        [
            tag("td", cell["attack"], class_="name"),
            cell["defence"],
            run["seed"],
            ", ".join(run.get("evicted", [])) or "nobody",
            code(run.get("experiment_digest", "-")),
            code(run.get("models_digest") or "-"),
        ]
        for cell in cells
        for run in cell["runs"]
    ]
    head = ["Attack", "Defence", "Seed", "Evicted", "Digest of the experiment", "Digest of models"]
    return section("Runs", table(head, rows, numbers=(2,)))


def _files(digests: Mapping[str, str]) -> Html:
    return table(
        ["File that this report was made from", "SHA-256"],
        [[code(name), code(digest)] for name, digest in digests.items()],
    )
