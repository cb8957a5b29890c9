"""`rampart reproduce`: the list, one cell of each paper, and errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies.reproduction import runs
from rampart_fl.services.console.studies.reproduction.files import load, names

Rampart = Callable[..., Any]
FIRST = {load(name).paper: name for name in reversed(names())}
"""One table of each paper."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST.values(), ids=FIRST)
def test_one_cell_of_each_paper_runs(name: str, rampart: Rampart, tmp_path: Path) -> None:
    said = rampart("reproduce", name, "--scale", "smoke", "--out", str(tmp_path), "--json")
    assert said.code == 0, said.err
    (cell,) = json.loads(said.out)["cells"]
    assert cell["mean"] is not None and cell["missing"] is None
    for kind in ("md", "json", "svg", "png"):
        assert (tmp_path / f"{name}-smoke.{kind}").exists()


@pytest.mark.slow
def test_finished_cells_are_kept_with_resume_and_never_overwritten(
    rampart: Rampart, tmp_path: Path
) -> None:
    words = ["reproduce", "fedcap-table-1", "--scale", "smoke", "--out", str(tmp_path)]
    assert rampart(*words).code == 0
    refused = rampart(*words)
    assert refused.code == 1 and "use --resume" in refused.err
    again = rampart(*words, "--resume")
    assert again.code == 0 and "rampart reproduce fedcap-table-1 --scale smoke --out" in again.out


def test_selection_without_a_cell_is_refused_and_failed_runs_are_errors(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reproduce", "fedcap-table-1", "--scale", "smoke", "--out", str(tmp_path)]
    said = rampart(*words, "--only", "attack=ipm")
    assert said.code == 1 and "no cell of smoke scale has the choices of --only" in said.err
    assert not list(tmp_path.iterdir())

    def fail(*_: Any, **__: Any) -> dict[str, Any]:
        return {"error": "the disk is full"}

    monkeypatch.setattr(runs, "figures_of", fail)
    said = rampart(*words)
    assert said.code == 1 and "the disk is full" in said.out
    assert "error: 1 of 1 runs failed; see the table" in said.err


def test_list_shows_the_cells_and_estimated_hours_of_each_table(
    rampart: Rampart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = rampart("reproduce", "--list").out
    assert all(name in table for name in names())
    # Without a terminal, each table has one line, with its whole title.
    lines = [line.split("│") for line in table.splitlines() if "fedcap-table-1 " in line]
    assert [cells[-2].strip() for cells in lines] == [load("fedcap-table-1").title]
    listed = json.loads(rampart("reproduce", "--list", "--json").out)
    assert {row["name"]: row["cells"] for row in listed}["fedcap-table-1"] == 144
    # A full run takes longer than a reduced one, wherever both were estimated.
    both = {row["name"]: row["hours"] for row in listed if len(row["hours"]) == 2}
    assert "fedcap-table-1" in both
    assert all(row["reduced"] <= row["full"] for row in both.values())


def test_invalid_arguments_are_refused_and_write_no_files(rampart: Rampart, tmp_path: Path) -> None:
    unknown = rampart("reproduce", "sdea-table-44", "--out", str(tmp_path))
    assert unknown.code == 1 and "did you mean 'sdea-table-4'?" in unknown.err
    assert rampart("reproduce", "sdea-table-4").code == 2
    pair = rampart("reproduce", "sdea-table-4", "--out", str(tmp_path), "--only", "share")
    assert pair.code == 1 and "--only share: write AXIS=CHOICE" in pair.err
    choice = rampart("reproduce", "sdea-table-4", "--out", str(tmp_path), "--only", "share=half")
    assert choice.code == 1 and "share has no choice 'half'" in choice.err
    device = rampart("reproduce", "sdea-table-4", "--out", str(tmp_path), "--device", "meta")
    assert device.code == 1 and "device 'meta' cannot be used" in device.err
    assert not any(tmp_path.iterdir())
