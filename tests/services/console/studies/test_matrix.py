"""`rampart matrix`: its cells, its cached results and its reports."""

import builtins
import json
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rampart_fl.services.console.app import app
from rampart_fl.services.console.studies import matrix, pools
from rampart_fl.services.console.studies.batch import run_simulation
from rampart_fl.services.console.studies.matrix import (
    MatrixCell,
    follow,
    member,
    plan,
    run,
    with_attack,
    with_defence,
)
from rampart_fl.services.console.studies.matrix_figures import Matrix
from rampart_fl.services.console.studies.matrix_report import heat_map, markdown, write
from rampart_fl.services.console.studies.plots import MatplotlibMissing
from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml

SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 5, "samples": 60},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"epochs": 1, "batch_size": 100},
    "personalizer": {"name": "fedcap", "lambda": 0.7},
    "server": {"customizer": {"name": "fedcap", "alpha": 3, "phi": 0.2}, "sample_cap": 77},
    "attackers": [{"count": 2, "attack": "lie"}],
}
BASE = Experiment.from_tables(SMALL)


def test_cell_replaces_the_attack_and_the_defence_of_the_base() -> None:
    (cell,) = plan(BASE, ["ipm:epsilon=2"], ["nnm+trimmed_mean"], rounds=7)
    experiment = cell.experiment
    assert [(g.count, g.attack) for g in experiment.attackers] == [
        (2, {"name": "ipm", "epsilon": 2})
    ]
    assert [stage["name"] for stage in experiment.server.rule] == ["nnm", "trimmed_mean"]
    assert (experiment.server.f, experiment.server.customizer["name"]) == (2, "global_model")
    assert (experiment.personalizer["name"], experiment.rounds) == ("none", 7)
    assert experiment.server.sample_cap == 77


def test_defences_keep_the_root_and_public_data_of_the_server() -> None:
    root = {"dataset": "digits", "size": 7}
    base = Experiment.from_tables(
        {**BASE.tables(), "server": {"root": root, "public": {"dataset": "noise", "size": 9}}}
    )
    (cell,) = plan(base, ["sign_flip"], ["fltrust"])
    server = cell.experiment.server
    assert server.root is not None and server.root.size == 7
    assert server.public is not None and server.public.size == 9


def test_fedcap_defences_keep_the_fedcap_settings_of_the_base() -> None:
    ours, paper = (c.experiment for c in plan(BASE, ["sign_flip"], ["fedcap", "fedcap-paper"]))
    assert (ours.server.eviction.bounded, paper.server.eviction.bounded) == (True, False)
    assert ours.server.f == paper.server.f == sum(group.count for group in ours.attackers)
    for result in (ours, paper):
        assert result.server.f == 2
        assert result.server.customizer == {"name": "fedcap", "alpha": 3, "phi": 0.2}
        assert result.personalizer == {"name": "fedcap", "lambda": 0.7}
    assert ours.server.detectors == [{"name": "response"}, {"name": "challenge"}]
    assert paper.server.detectors == [{"name": "norm_bound", "threshold": 10}]
    plain = Experiment.from_tables({**SMALL, "personalizer": "none", "server": {}})
    (cell,) = plan(plain, ["none"], ["fedcap"])
    assert cell.experiment.server.customizer["alpha"] == 10
    assert cell.experiment.personalizer["name"] == "fedcap"


def test_reference_defences_use_their_personalizer_and_plain_averaging() -> None:
    alone, tuned = (c.experiment for c in plan(BASE, ["lie"], ["local_only", "fine_tuned"]))
    assert alone.personalizer == {"name": "local"}
    assert tuned.personalizer == {"name": "fine_tune"}
    for result in (alone, tuned):
        assert result.server.rule == [{"name": "weighted_mean"}]
        assert result.server.customizer["name"] == "global_model"
        assert (result.server.detectors, result.server.sample_cap) == ([], 77)


def test_local_only_runs_once_for_all_attacks_with_the_same_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = plan(BASE, ["none", "ipm", "dba:width=3"], ["local_only"])
    ran: list[str] = []

    def counted(experiment: Experiment, device: str) -> dict[str, Any]:
        ran.append(experiment.digest())
        return run_simulation(experiment, device)

    monkeypatch.setattr(matrix, "run_simulation", counted)
    table = {cell.attack: figures for cell, figures in run(cells, tmp_path)}
    assert len(ran) == len(set(ran)) == 2
    assert set(table) == {"none", "ipm", "dba:width=3"}
    for figures in table.values():
        assert figures["accuracy_local"] == figures["accuracy_personalized"] > 0
        assert figures["accuracy_customized"] is None
    success = table["dba:width=3"]
    assert success["attack_success_local"] == success["attack_success_personalized"] is not None
    assert success["attack_success_customized"] is None


@pytest.mark.parametrize("attack", ["ipm", "label_flip"])
def test_attacks_do_not_affect_local_only_clients(attack: str) -> None:
    (cell,) = plan(BASE, [attack], ["local_only"])
    hit = Experiment.from_tables(with_defence(with_attack(BASE, attack), "local_only", 2))
    assert hit.attackers != cell.experiment.attackers
    assert (
        run_simulation(hit)["accuracy_personalized"]
        == run_simulation(cell.experiment)["accuracy_personalized"]
    )


def test_fine_tuned_equals_plain_averaging_after_local_training(tmp_path: Path) -> None:
    (_, tuned), (_, plain) = run(plan(BASE, ["lie"], ["fine_tuned", "weighted_mean"]), tmp_path)
    assert tuned["accuracy_personalized"] == tuned["accuracy_local"] == plain["accuracy_local"]
    assert tuned["accuracy_customized"] == plain["accuracy_customized"]
    assert plain["accuracy_personalized"] is None


def test_row_without_attack_measures_the_same_clients_and_counts_all_as_honest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = plan(BASE, ["none", "lie"], ["fedcap"])
    assert cells[0].experiment.roles.count(None) == cells[1].experiment.roles.count(None) == 3
    figures = {"accuracy": 0.5, "dacc": 0.8, "fpr": 0.0, "fnr": 0.5, "evicted": ["client-04"]}
    monkeypatch.setattr(matrix, "run_simulation", lambda *_: dict(figures))
    (_, calm), (_, attacked) = run(cells, tmp_path)
    assert calm == {**figures, "dacc": None, "fnr": None, "fpr": 0.2}
    assert attacked == figures


def test_backdoor_success_is_evaluated_only_under_backdoor_attacks() -> None:
    data, model = plan(BASE, ["dba:width=3", "lie"], ["median"])
    assert data.experiment.evaluation.trigger == {"name": "dba", "width": 3}
    assert data.experiment.attackers[0].data_attack == {"name": "dba", "width": 3}
    assert model.experiment.evaluation.trigger is None


def test_thirty_percent_attack_if_the_base_has_no_attackers() -> None:
    benign = Experiment.from_tables({**SMALL, "attackers": []})
    (cell,) = plan(benign, ["sign_flip"], ["median"])
    assert (cell.experiment.attackers[0].count, cell.experiment.server.f) == (2, 2)


@pytest.mark.parametrize(
    ("attacks", "defences", "message"),
    [
        ([], ["median"], "a matrix needs at least one attack"),
        (["ipm"], [], "a matrix needs at least one defence"),
        (["none", "ipm", "none"], ["median"], "attack 'none' is listed 2 times; list it once"),
        (["ipm"], ["median", "median"], "defence 'median' is listed 2 times; list it once"),
    ],
)
def test_empty_lists_and_duplicates_are_refused(
    attacks: list[str], defences: list[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan(BASE, attacks, defences)


def test_invalid_attacks_and_defences_are_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownMember, match="label_flip"):
        plan(BASE, ["sing_flip"], ["median"])
    with pytest.raises(UnknownMember, match="trimmed_mean"):
        plan(BASE, ["sign_flip"], ["medain"])
    with pytest.raises(ConfigurationError, match="epsilon"):
        plan(BASE, ["ipm:epsilan=2"], ["median"])
    with pytest.raises(ConfigurationError, match="key=value"):
        member("lie:knows")
    with pytest.raises(ConfigurationError, match=r"krum needs .* n=5, f=2"):
        plan(BASE, ["sign_flip"], ["median", "krum"])


def test_each_seed_has_its_own_runs_in_seed_order() -> None:
    base = BASE.model_copy(update={"seed": 4})
    cells = plan(base, ["lie"], ["median", "fedcap"], seeds=3)
    assert [cell.experiment.seed for cell in cells] == [4, 4, 5, 5, 6, 6], "seed by seed"
    assert len({cell.file for cell in cells}) == 6
    assert MatrixCell("lie", "median", cells[0].experiment, network=True).file not in cells[0].file


def test_finished_cells_are_skipped_and_failed_cells_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed cell is reported, and runs again the next time."""
    ran: list[str] = []

    def pretend(experiment: Experiment, device: str) -> dict[str, Any]:
        ran.append(experiment.server.rule[0]["name"])
        if ran.count("trimmed_mean") == 1 and ran[-1] == "trimmed_mean":
            raise ConfigurationError("no luck")
        return {"accuracy": 0.5}

    monkeypatch.setattr(matrix, "run_simulation", pretend)
    cells = plan(BASE, ["lie"], ["median", "trimmed_mean"])
    assert [figures.get("accuracy") for _, figures in run(cells, tmp_path)] == [0.5, None]
    assert [figures["accuracy"] for _, figures in run(cells, tmp_path)] == [0.5, 0.5]
    assert ran == ["median", "trimmed_mean", "trimmed_mean"]


def test_cached_cells_come_first_and_are_excluded_from_the_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "run_simulation", lambda *_: {"accuracy_local": 0.5})
    cells = plan(BASE, ["lie", "ipm"], ["median"], seeds=2)
    list(run(cells[2:], tmp_path))
    seen: list[MatrixCell] = []
    follow(cells, tmp_path, None, lambda cell, figures: seen.append(cell))
    assert seen == [*cells[2:], *cells[:2]]
    assert capsys.readouterr().err.splitlines() == [
        f"2 of 4 runs are already in {tmp_path / 'cells'}",
        "1/2 lie / median seed=0: accuracy_local 0.5",
        "2/2 ipm / median seed=0: accuracy_local 0.5",
    ]


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


def test_cells_on_ray_get_the_device_and_the_share_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(to_toml(BASE.tables()))
    clusters: list[tuple[Any, ...]] = []
    devices: list[str] = []

    def cluster(*resources: Any) -> Executor:
        clusters.append(resources)
        return ThreadPoolExecutor(1)

    def simulated(experiment: Experiment, device: str) -> dict[str, Any]:
        devices.append(device)
        return {"accuracy_local": 0.5}

    monkeypatch.setattr(pools, "RayCluster", cluster)
    monkeypatch.setattr(matrix, "run_simulation", simulated)
    words = ["matrix", str(file), "--attacks", "lie", "--defences", "median"]
    words += ["--seeds", "2", "--out", str(tmp_path / "out"), "--json"]
    words += ["--ray", "local", "--device", "cuda", "--gpus", "0.25"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert clusters == [("local", 1, 0.25)]
    assert devices == ["cuda", "cuda"]


def test_matrix_command_reports_all_cells_and_reuses_finished_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "small.toml"
    file.write_text(to_toml(BASE.tables()))
    words = ["matrix", str(file), "--attacks", "none,dba:width=3"]
    words += ["--defences", "median,fedcap", "--rounds", "1", "--seeds", "2"]
    words += ["--out", str(tmp_path / "out"), "--heat-map", "customized"]
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    for kind in ("customized", "local"):
        success = [cell[f"attack_success_{kind}"] for cell in report["cells"]]
        assert [share is None for share in success] == [True, True, False, False]
        assert all(0 < cell[f"accuracy_{kind}"] < 1 for cell in report["cells"])
    assert [len(cell["runs"]) for cell in report["cells"]] == [2] * 4
    kept = sorted((tmp_path / "out" / "cells").iterdir())
    assert len(kept) == 8
    times = [path.stat().st_mtime_ns for path in kept]
    text = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert text == (tmp_path / "out" / "matrix.md").read_text()
    assert [path.stat().st_mtime_ns for path in kept] == times
