"""The tables of the papers: every cell is a valid experiment, with the paper's settings."""

from functools import cache

import pytest

from rampart_fl.services.console.studies.reproduction.cells import TableCell, cells
from rampart_fl.services.console.studies.reproduction.definition import SCALES, Scale
from rampart_fl.services.console.studies.reproduction.files import load, names
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from tests.services.console.studies.reproduction.small import small


@cache
def built(name: str, scale: Scale) -> list[TableCell]:
    """All cells of a table with one seed, including cells that run only on request."""
    definition = load(name)
    every = {axis: list(choices) for axis, choices in definition.axes.items()}
    return cells(definition, scale, seeds=1, only=every)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_cell_has_either_unique_runs_or_a_reason(name: str) -> None:
    definition = load(name)
    table = {scale: built(name, scale) for scale in SCALES}
    for scale in ("full", "reduced"):
        grid = table[scale]
        assert len(grid) == len(list(definition.grid()))
        assert all(bool(cell.runs) != bool(cell.reason) for cell in grid)
        runs = [(run.digest(), cell.measure) for cell in grid for run in cell.runs]
        assert len(runs) == len(set(runs)), "two cells are the same experiment"
    (smoke,) = table["smoke"]
    assert len(smoke.runs) == 1
    assert any(cell.runs for cell in table["reduced"])


def hostile(experiment: Experiment) -> tuple[int, int]:
    return experiment.data.clients, sum(group.count for group in experiment.attackers)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_reduced_scale_keeps_clients_attackers_and_local_steps(name: str) -> None:
    full = {tuple(c.at.values()): c.runs[0] for c in built(name, "full") if c.runs}
    for cell in built(name, "reduced"):
        if not cell.runs:
            continue
        paper, here = full[tuple(cell.at.values())], cell.runs[0]
        assert hostile(here) == hostile(paper)
        for key in ("fraction", "attackers", "personalizer", "evaluation", "placement"):
            assert getattr(here, key) == getattr(paper, key)
        assert here.fraction_of == paper.fraction_of
        for key in ("rule", "detectors", "customizer", "f", "eviction"):
            assert getattr(here.server, key) == getattr(paper.server, key)
        assert here.data.partition == paper.data.partition
        if paper.data.samples and here.data.samples:
            assert steps(here) >= 0.9 * steps(paper)


def steps(experiment: Experiment) -> float:
    assert experiment.data.samples is not None
    train = experiment.data.samples * (1 - experiment.data.test_fraction)
    return experiment.training.epochs * max(train / experiment.training.batch_size, 1)


def test_fedcap_table_1_has_the_authors_settings_and_published_values() -> None:
    grid = {tuple(c.at.values()): c for c in cells(load("fedcap-table-1"), "full", 3)}
    assert len(grid) == 3 * 6 * 8
    lie = grid["cifar10", "lie", "fedcap"]
    assert (lie.value, lie.measure) == (84.95, "accuracy")
    first = lie.runs[0]
    assert first.server.customizer == {"name": "fedcap", "alpha": 10, "phi": 0.2}
    assert first.personalizer == {"name": "fedcap", "lambda": 0.1}
    assert first.attackers[0].attack == {
        "name": "lie",
        "knows": "full",
        "statistics_over": "all",
    }
    assert [run.seed for run in lie.runs] == [0, 1, 2]
    assert (first.data.clients, first.attackers[0].count, first.placement) == (20, 6, "random")
    replaced = grid["cifar10", "model_replacement", "fedcap"].runs[0]
    assert (replaced.personalizer["lambda"], replaced.server.customizer["phi"]) == (10.0, 0.3)
    user = grid["wisdm", "lie", "fedcap"].runs[0]
    assert (user.server.customizer["alpha"], user.data.clients) == (1, 36)
    baseline = grid["emnist", "ipm", "median"]
    assert (baseline.value, baseline.measure) == (65.88, "accuracy_local")
    assert (baseline.runs[0].fraction, baseline.runs[0].attackers[0].count) == (0.2, 30)


@pytest.mark.slow
def test_fedcap_figures_include_ditto_and_the_paper_settings() -> None:
    figures = {
        f"fedcap-figure-{n}": {cell.at["method"] for cell in built(f"fedcap-figure-{n}", "full")}
        for n in (7, 8, 10)
    }
    assert all("fedcap" in methods and "ditto" in methods for methods in figures.values())
    grid = {tuple(c.at.values()): c for c in built("fedcap-figure-7", "full")}
    flipped = grid["wisdm", "label_flip", "fedcap"]
    assert (flipped.measure, flipped.runs[0].server.customizer["alpha"]) == ("accuracy", 4)
    for data in ("cifar10", "emnist", "wisdm"):
        run = grid[data, "none", "fedfomo"].runs[0]
        assert run.server.customizer["peers"] == round(run.fraction * run.data.clients / 2)


def test_fedcap_motivation_and_evaluation_partition_emnist_differently() -> None:
    """Section III makes 20 % of the samples IID; section VI has three groups of classes."""
    for scale in ("full", "reduced"):
        motivation = {tuple(c.at.values()): c.runs[0] for c in built("fedcap-figure-1", scale)}
        evaluation = {tuple(c.at.values()): c.runs[0] for c in built("fedcap-figure-7", scale)}
        at = ("emnist", "none", "ditto")
        assert motivation[at].data.partition == {"name": "iid_plus_sorted", "iid": 0.2}
        assert evaluation[at].data.partition["name"] == "dominant_groups"
    assert built("fedcap-figure-1", "full")[3].runs[0].data.samples == 300


def test_sdea_rows_without_public_data_have_published_values_but_no_runs() -> None:
    rows = [c for c in built("sdea-table-7", "full") if c.at["method"] == "sdea_market1501"]
    assert len(rows) == 24
    assert all("Market1501" in str(cell.reason) and cell.value for cell in rows)


@pytest.mark.parametrize("name", names())
@pytest.mark.slow
def test_tables_use_only_detectors_from_papers(name: str) -> None:
    runs = [run for cell in built(name, "full") for run in cell.runs]
    used = {detector["name"] for run in runs for detector in run.server.detectors}
    assert used <= {"norm_bound", "fedredefense"}


def test_fedcap_table_3_reuses_the_runs_of_table_1() -> None:
    runs = {run.digest() for cell in built("fedcap-table-1", "full") for run in cell.runs}
    grid = {tuple(cell.at.values()): cell for cell in built("fedcap-table-3", "full")}
    result = grid["emnist", "fnr", "lie"]
    assert (result.measure, result.value) == ("fnr", 63.33)
    assert {run.digest() for run in result.runs} <= runs
    calm = grid["cifar10", "tacc", "none"].runs[0]
    assert (calm.attackers, calm.personalizer["lambda"]) == ([], 1.0)


def test_only_selected_choices_are_built_and_unknown_choices_refused() -> None:
    result = cells(small(), "full", 1, {"attack": ["ipm"]})
    assert [(cell.at["method"], cell.value) for cell in result] == [
        ("median", 75.05),
        ("fedcap", None),
    ]
    with pytest.raises(
        ConfigurationError, match="--only: attack has no choice 'lies'; choices: lie"
    ):
        cells(small(), "full", 1, {"attack": ["lies"]})
    with pytest.raises(ConfigurationError, match="--only: there is no axis 'tack'; axes: attack"):
        cells(small(), "full", 1, {"tack": ["lie"]})


def test_impossible_cells_have_a_reason_only_at_the_given_scale() -> None:
    barred = [{"at": {"attack": "ipm", "scale": "full"}, "reason": "no hours"}]
    result = [cell.reason for cell in cells(small(impossible=barred), "full", 1)]
    assert result == [None, None, "no hours", "no hours"]
    assert all(cell.runs for cell in cells(small(impossible=barred), "reduced", 1))


def test_reduced_scale_skips_on_request_cells_unless_selected() -> None:
    definition = small(on_request=[{"at": {"attack": "ipm"}}])
    shown = [cell.reason for cell in cells(definition, "reduced", 1)]
    left_out = "left out to save time; run it with --only attack=ipm"
    assert shown == [None, None, left_out, left_out]
    selected = cells(definition, "reduced", 1, {"attack": ["ipm"]})
    assert len(selected) == 2 and all(cell.runs for cell in selected)
    assert all(cell.reason for cell in cells(definition, "reduced", 1, {"method": ["median"]})[1:])
    assert all(cell.runs for cell in cells(definition, "full", 1))


def test_invalid_setting_is_refused_with_the_name_of_its_cell() -> None:
    wrong = [{"at": {"method": "median"}, "change": {"server": {"rul": "median"}}}]
    with pytest.raises(ConfigurationError, match=r"attack lie, method median: server.rul: no such"):
        cells(small(settings=wrong), "full", 1)
