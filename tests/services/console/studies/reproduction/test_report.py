"""The report of a table: means, intervals, differences, reasons and plots."""

import json
import re
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies.reproduction.cells import TableCell, cells
from rampart_fl.services.console.studies.reproduction.definition import Definition
from rampart_fl.services.console.studies.reproduction.files import load, parse
from rampart_fl.services.console.studies.reproduction.report import (
    CellResult,
    interval,
    lines_of,
    markdown,
    outcome,
    write,
)
from rampart_fl.services.console.studies.reproduction.runs import plan

TABLE = """
title = "Small"
paper = "fedcap"
axes = { attack = ["lie", "ipm"], method = ["median", "fedcap"] }
fixed = { data = "cifar10" }
smoke = { attack = "lie", method = "fedcap" }
values = { lie = [50.00, nan], ipm = [75.00, 84.29] }
measure = "accuracy_local"
notes = ["A note."]
[[impossible]]
at = { attack = "ipm", method = "fedcap" }
reason = "too long"
"""
VERSIONS = {"python": "3.11", "torch": "2"}


def outcomes(definition: Definition, shares: dict[str, list[float]]) -> list[CellResult]:
    """Results with these accuracies, keyed by method; cells of other methods did not run."""

    def made(cell: TableCell) -> CellResult:
        runs = plan([cell])
        table: dict[str, dict[str, Any]] = {}
        for one, share in zip(runs, shares.get(cell.at["method"], []), strict=False):
            table[one.file] = {
                "accuracy": share,
                "accuracy_local": share,
                "experiment_digest": one.experiment.digest(),
                "seconds": 2.0,
                "versions": VERSIONS,
                "curves": {"accuracy": [share / 2, share]},
            }
        return outcome(cell, table)

    return [made(cell) for cell in cells(definition, "full", 3)]


def test_interval_uses_students_t_distribution() -> None:
    # 4.302653 is the 97.5 % quantile of Student's t with two degrees of freedom.
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / sqrt(3), rel=1e-6)
    assert interval([1.0]) is None


def test_markdown_shows_the_published_value_beside_our_mean() -> None:
    definition = parse(TABLE)
    text = markdown(definition, "full", outcomes(definition, {"median": [0.4, 0.5]}), "command")
    half = 12.706205 * sqrt(0.005) / sqrt(2) * 100
    row = re.search(r"\| LIE \|(.*)\|", text)
    assert row and row[1].split(" | ")[0].strip() == f"45.0 ± {half:.1f} (50.00, -5.0)"
    assert "| IPM | 45.0 ± 63.5 (75.00, -30.0) | - (84.29) |" in text
    assert "- too long: ipm / fedcap." in text
    assert "- not run: lie / fedcap." in text
    assert "- A note." in text and "```sh\ncommand\n```" in text
    assert "8 seconds" in text and "torch 2" in text


def test_smoke_report_says_that_it_only_shows_that_a_cell_runs() -> None:
    definition = load("sdea-table-4")
    (cell,) = cells(definition, "smoke")
    text = markdown(definition, "smoke", [outcome(cell, {})], "command")
    assert "shows only that a cell runs" in text and "67.47" not in text


def test_json_and_plots_are_written(tmp_path: Path) -> None:
    definition = parse(TABLE)
    write(tmp_path, "small", definition, "full", outcomes(definition, {"median": [0.4]}), "command")
    report = json.loads((tmp_path / "small-full.json").read_text())
    assert [cell["missing"] for cell in report["cells"]] == [None, "not run", None, "too long"]
    assert report["cells"][0] == {
        "attack": "lie",
        "method": "median",
        "measure": "accuracy_local",
        "mean": 40.0,
        "interval": None,
        "paper": 50.0,
        "difference": -10.0,
        "missing": None,
        "digests": report["cells"][0]["digests"],
    }
    assert len(report["cells"][0]["digests"]) == 3
    assert (tmp_path / "small-full.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "small-full.svg").read_text()


def test_curves_run_over_rounds_or_over_choices() -> None:
    definition = parse(TABLE + '[figure]\nalong = "rounds"\nmeasures = ["accuracy"]\n')
    result = outcomes(definition, {"median": [0.4, 0.6], "fedcap": [0.8]})
    assert definition.figure is not None
    at, panels, _ = lines_of(definition, definition.figure, result)
    assert at == [1, 2]
    assert panels["accuracy"]["LIE Median"] == pytest.approx([0.25, 0.5])
    assert panels["accuracy"]["LIE FedCAP"] == pytest.approx([0.4, 0.8])
    over = definition.figure.model_copy(update={"along": "method", "measures": []})
    at, panels, spread = lines_of(definition, over, result)
    assert at == ["Median", "FedCAP"]
    assert panels["accuracy"]["LIE"] == pytest.approx([50.0, 80.0])
    assert panels["accuracy"]["IPM"] == [pytest.approx(50.0), None]
    assert spread["accuracy", "LIE"] == [pytest.approx(12.706205 * 10, rel=1e-6), None]


def test_all_measures_of_a_run_can_share_a_panel() -> None:
    head = '[figure]\nalong = "rounds"\npanels = "attack"\ntogether = true\n'
    definition = parse(TABLE + head + 'measures = ["accuracy", "loss"]\n')
    result = outcomes(definition, {"median": [0.4]})
    assert definition.figure is not None
    _, panels, _ = lines_of(definition, definition.figure, result)
    assert set(panels) == {"LIE", "IPM"}
    assert set(panels["LIE"]) >= {"Median accuracy", "Median loss"}
    assert panels["LIE"]["Median accuracy"] == pytest.approx([0.2, 0.4])
