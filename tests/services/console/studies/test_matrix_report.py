"""The report of a matrix: its tables and its heat map."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies.matrix_cells import plan
from rampart_fl.services.console.studies.matrix_figures import Matrix
from rampart_fl.services.console.studies.matrix_report import heat_map, markdown, write
from rampart_fl.services.console.studies.plots import MatplotlibMissing
from tests.services.console.studies.test_matrix_cells import BASE


def filled() -> Matrix:
    """Two attacks, two defences, two seeds; one cell lacks a run, another has only a failed run."""
    result = Matrix(["none", "dba:width=3"], ["median", "fedcap"])
    for attack, defence, seed, received, local, success in (
        ("none", "median", 0, 0.9, 0.95, None),
        ("none", "median", 1, 0.8, 0.95, None),
        ("none", "fedcap", 0, 0.8, 0.875, None),
        ("dba:width=3", "median", 1, 0.7, 0.75, 0.0),
        ("dba:width=3", "median", 0, 0.5, 0.85, 1.0),
    ):
        (cell,) = plan(BASE.model_copy(update={"seed": seed}), [attack], [defence])
        result.add(
            cell,
            {
                "accuracy_customized": received,
                "accuracy_local": local,
                "accuracy_personalized": 1.0 if defence == "fedcap" else None,
                "attack_success_local": success,
                "fpr": 0.0,
            },
        )
    (cell,) = plan(BASE, ["dba:width=3"], ["fedcap"])
    result.add(cell, {"error": "Broken: no luck"})
    return result


ABOUT = {"experiment": "small", "rounds": 2, "seeds": 2}


def section(text: str, title: str) -> list[str]:
    """The table under a heading."""
    _, _, rest = text.partition(f"# {title}\n\n")
    return rest.partition("\n#")[0].strip().splitlines()


def test_tables_show_means_and_deviations_over_seeds_in_percent() -> None:
    text = markdown(filled(), ABOUT)
    assert section(text, "Accuracy as received") == [
        "| attack | median | fedcap |",
        "|---|---:|---:|",
        "| none | 85.0 ± 7.1 | 80.0 |",
        "| dba:width=3 | 60.0 ± 14.1 | - |",
    ]
    assert "| none | 95.0 ± 0.0 | 87.5 |" in section(text, "Accuracy after local training")
    assert section(text, "Accuracy of the personal model")[::2] == [
        "| attack | fedcap |",
        "| none | 100.0 |",
    ]
    assert section(text, "Attack success after local training")[::2] == [
        "| attack | median |",
        "| dba:width=3 | 50.0 ± 70.7 |",
    ]
    assert section(text, "FPR")[0] == "| attack | fedcap |", "only who has a detector is judged"
    assert "FNR" not in text
    assert "- dba:width=3 / fedcap, seed 0: Broken: no luck" in section(text, "Failed")


def test_accuracy_losses_are_computed_seed_by_seed() -> None:
    """Received: 0.9 - 0.5 and 0.8 - 0.7; after local training: 0.95 - 0.85 and 0.95 - 0.75."""
    text = markdown(filled(), ABOUT)
    received, local = (
        section(text, f"Accuracy {model}: lost to the attack")
        for model in ("as received", "after local training")
    )
    assert received[2:] == ["| dba:width=3 | 25.0 ± 21.2 |"]
    assert local[2:] == ["| dba:width=3 | 15.0 ± 7.1 |"]


def test_without_attacks_there_are_no_tables_of_losses() -> None:
    matrix = Matrix(["none"], ["median"])
    (cell,) = plan(BASE, ["none"], ["median"])
    matrix.add(cell, {"accuracy_local": 0.9})
    text = markdown(matrix, ABOUT)
    assert section(text, "Accuracy after local training")[2:] == ["| none | 90.0 |"]
    assert "lost to the attack" not in text


def test_summary_shows_the_accuracy_of_each_model_per_defence() -> None:
    """Columns: no attack, worst attack, costly attacks; values: local, received, personal."""
    assert section(markdown(filled(), ABOUT), "Summary")[-2:] == [
        "| median | 95.0 / 85.0 / - | 80.0 / 60.0 / - | 1 / 1 / - |",
        "| fedcap | 87.5 / 80.0 / 100.0 | - / - / - | - / - / - |",
    ]


def test_report_files_contain_the_cells_and_a_heat_map(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(filled(), tmp_path, ABOUT, "local")
    cells = json.loads((tmp_path / "matrix.json").read_text())["cells"]
    assert [(c["attack"], c["defence"]) for c in cells][2] == ("dba:width=3", "median")
    assert cells[2]["accuracy_customized"] == pytest.approx(0.6)
    assert cells[2]["accuracy_local"] == pytest.approx(0.8)
    assert cells[2]["accuracy_personalized"] is None
    assert cells[2]["spread"]["accuracy_local"] == pytest.approx(0.005**0.5)
    assert [run["seed"] for run in cells[2]["runs"]] == [0, 1]
    assert cells[1]["spread"] == {}, "one run has none"
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")


def test_estimation_errors_are_not_listed_as_failures() -> None:
    (cell,) = plan(BASE, ["none"], ["median"])
    for figures, listed in (({"error": 0.25}, False), ({"error": "Boom: why"}, True)):
        matrix = Matrix(["none"], ["median"])
        matrix.add(cell, figures)
        text = markdown(matrix, {"experiment": "means", "seeds": 1})
        assert ("## Failed" in text) == listed


def test_heat_map_states_which_accuracy_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    save = figure.Figure.savefig

    def seen(self: Any, *arguments: Any, **options: Any) -> None:
        drawn.append(self)
        save(self, *arguments, **options)

    monkeypatch.setattr(figure.Figure, "savefig", seen)
    for accuracy in ("local", "personalized"):
        heat_map(filled(), tmp_path / "matrix.png", ABOUT, accuracy)
    local, personal = drawn
    assert "accuracy after local training" in local.get_suptitle()
    assert [axis.get_title() for axis in local.axes] == ["Accuracy", "Attack success", "FPR"]
    assert [text.get_text() for text in local.axes[0].texts] == ["95", "88", "80", ""]
    assert "accuracy of the personal model" in personal.get_suptitle()
    assert [text.get_text() for text in personal.axes[0].texts] == ["100", ""]


def test_tables_are_written_and_the_plots_extra_is_named_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def missing(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MatplotlibMissing, match=r"rampart-fl\[plots\]"):
        write(filled(), tmp_path, ABOUT, "local")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["matrix.json", "matrix.md"]
