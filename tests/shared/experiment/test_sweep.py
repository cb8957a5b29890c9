"""Sweeps: which experiments a file defines, and how their figures are combined."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.shipped import shipped
from rampart_fl.shared.experiment.sweep import Sweep, averaged
from rampart_fl.shared.validation import validate

BASE = """
name = "small"
seed = 3
rounds = 2
model = "cnn"
personalizer = "fedcap"
[data]
dataset = "digits"
clients = 8
[server]
rule = ["nnm", "krum"]
[[attackers]]
count = 1
attack = "sign_flip"
"""


def sweep(text: str) -> Sweep:
    return Sweep.of(tomllib.loads(f"{BASE}\n[sweep]\n{text}"))


def test_sweep_yields_one_experiment_per_grid_point_and_run() -> None:
    result = sweep(
        "rounds = [5, 6]\npersonalizer.lambda = { from = 0, to = 1, step = 0.5 }\nruns = 2"
    )
    points = result.points(validate)
    assert [point.at for point in points] == [
        {"rounds": rounds, "lambda": value} for rounds in (5, 6) for value in (0, 0.5, 1)
    ]
    tables = result.base.tables()
    for point in points:
        own = {"name": "fedcap", "lambda": point.at["lambda"]}
        for run, seed in zip(point.runs, (3, 4), strict=True):
            changes = {"seed": seed, "rounds": point.at["rounds"], "personalizer": own}
            assert run == Experiment.from_tables({**tables, **changes})
    assert len({run.digest() for point in points for run in point.runs}) == 12
    listed = "rounds = [5, 6]\npersonalizer.lambda = [0.0, 0.5, 1.0]\nseeds = [3, 4]"
    assert result.digest() == sweep(listed).digest() != sweep("rounds = [5, 6]").digest()


def test_axis_paths_may_index_lists_and_values_may_be_members() -> None:
    result = sweep('server.rule = ["median", ["nnm", { name = "krum" }]]\nseeds = [7]')
    rules = [[stage["name"] for stage in p.runs[0].server.rule] for p in result.points(validate)]
    assert rules == [["median"], ["nnm", "krum"]]
    assert [point.runs[0].seed for point in result.points(validate)] == [7, 7]
    (point,) = sweep("server.rule.1.f = [2]").points(validate)
    assert point.runs[0].server.rule[1] == {"name": "krum", "f": 2}


def test_one_axis_can_set_several_parameters_down_to_zero_attackers() -> None:
    result = sweep('attackers.0.count = { values = [0, 2], also = ["server.f"] }').points(validate)
    assert [point.at for point in result] == [{"count": 0}, {"count": 2}]
    for point in result:
        run = point.runs[0]
        assert sum(role is not None for role in run.roles) == run.server.f == point.at["count"]


def test_axes_add_optional_tables_that_the_file_lacks() -> None:
    result = sweep(
        "clients.least = [2]\ntraining.privacy.clip = [0.5, 2.0]\n"
        'training.privacy.delta = [1e-6]\nevaluation.trigger.name = ["dba"]\n'
        'server.root.dataset = ["digits"]\nmodel.start.run = ["before-1"]'
    )
    runs = [point.runs[0] for point in result._points()]
    assert [run.training.privacy and run.training.privacy.clip for run in runs] == [0.5, 2.0]
    for run in runs:
        assert run.clients.least == 2
        assert run.training.privacy is not None and run.training.privacy.delta == 1e-6
        assert run.evaluation.trigger == {"name": "dba"}
        assert run.server.root is not None and run.server.root.dataset == {"name": "digits"}
        assert run.start is not None and run.start.run == "before-1"
    assert result.base.training.privacy is None


def test_axes_with_the_same_last_key_are_labelled_by_their_full_paths() -> None:
    result = sweep("server.momentum = [0.1]\ntraining.momentum = [0.2]\nserver.rule.0.f = [1]")
    assert [axis.key for axis in result.axes] == ["server.momentum", "f", "training.momentum"]


@pytest.mark.parametrize(
    ("axes", "count", "ends"),
    [
        ("{ from = 0, to = 1, step = 0.05 }", 21, (0.0, 1.0)),
        ("{ from = 0.1, to = 0.7, step = 0.1 }", 7, (0.1, 0.7)),
        ("{ from = 0.0, to = 0.9, count = 4 }", 4, (0.0, 0.9)),
        ("{ from = 0.0, to = 0.95, step = 0.3 }", 4, (0.0, 0.9)),
    ],
)
def test_range_values_have_exact_ends_and_short_decimals(
    axes: str, count: int, ends: tuple[float, float]
) -> None:
    (axis,) = sweep(f"personalizer.lambda = {axes}").axes
    assert len(axis.values) == count
    assert (axis.values[0], axis.values[-1]) == ends
    assert all(len(repr(value)) <= 4 for value in axis.values)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ("runs = 3", "no axis"),
        ("rounds = [1]\nruns = 2\nseeds = [1]", "not both"),
        ("rounds = [1]\nseeds = 4", "`seeds` a list of distinct"),
        ("rounds = [1]\nseeds = []", "`seeds` a list of distinct"),
        ("rounds = [1]\nseeds = [3, 3]", "distinct whole numbers"),
        ("rounds = [1]\nruns = 0", "a whole number of at least 1"),
        ("rounds = [1]\nruns = -1", "a whole number of at least 1"),
        ("rounds = [1]\nruns = true", "a whole number of at least 1"),
        ("seed = [1, 2]", "`seed` cannot be an axis; give `seeds`"),
        ('rounds = { values = [1, 2], also = ["seed"] }', "`seed` cannot be an axis; give `seeds`"),
        ("rounds = { from = 3, to = 1, step = 1 }", "from = 3 is above to = 1"),
        ("rounds = { from = 2, to = 2, count = 3 }", "from = to = 2 is one value, not count = 3"),
        ("rounds = [1, 2, 1]", "rounds: the value 1 is listed twice"),
        (
            "training.learning_rate = { from = 1e-12, to = 3e-12, step = 1e-12 }",
            "training.learning_rate: the value 0.0 is listed twice",
        ),
        (
            'training.epochs = [1, 2]\nrounds = { values = [3], also = ["training.epochs"] }',
            "training.epochs would overwrite training.epochs",
        ),
        (
            'server.rule.0.f = [1, 2]\nrounds = { values = [3], also = ["server.rule"] }',
            "server.rule would overwrite server.rule.0.f",
        ),
        ("rounds = 4", "rounds: a list of values"),
        ("rounds = []", "rounds: .*give `values`"),
        ("rounds = { from = 1, to = 3 }", "needs `step` or `count`"),
        ("rounds = { from = 1, step = 3 }", "`from` and `to`"),
        ("rounds = { values = [1], step = 3 }", "need `from` and `to`, not `values`"),
        ("rounds = { from = 1, to = 3, step = 1, by = 2 }", "by"),
    ],
)
def test_invalid_sweeps_are_rejected_with_a_reason(axes: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        sweep(axes)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (
            "server.rule.5.f = [1]",
            "server.rule.5.f: no entry '5': server.rule has the entries 0 to 1",
        ),
        ("server.rule.-1.f = [1]", "no entry '-1': server.rule has the entries 0 to 1"),
        ("attackers.3.count = [1]", "attackers.3.count: no entry '3': attackers has one entry, 0"),
        ("attackers.3 = [{ count = 1 }]", "attackers.3: no entry '3': attackers has one entry, 0"),
        ("server.detectors.0.f = [1]", "no entry '0': server.detectors has no entries"),
        ("rounds.most = [1]", "rounds.most: rounds is 2, which has no keys"),
        ("serve.f = [1]", "serve: no such key .did you mean 'server'"),
        ("training.privacy.clp = [1]", "training.privacy.clp: no such key .did you mean 'clip'"),
        ("server.root.size = [9]", "server.root.dataset: Field required"),
        ("5 = [1]", "5: no such key"),
        ("server.g = [1]", "server.g"),
        ('server.rule = ["medain"]', "did you mean 'median'"),
        ("attackers.0.count = [1, 8]", "8 attackers, but only 8 clients"),
    ],
)
def test_invalid_points_are_rejected_before_any_run(axes: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        sweep(axes).points(validate)


def test_sweep_file_is_not_loaded_as_an_experiment(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(f"{BASE}\n[sweep]\nrounds = [1, 2]")
    with pytest.raises(ConfigurationError, match="use rampart simulate"):
        Experiment.load(path)
    result = Sweep.load(path, seed=9)
    assert result is not None
    assert [point.runs[0].seed for point in result.points(validate)] == [9, 9]
    assert Sweep.load("digits-benign") is None


def test_figures_are_averaged_over_the_runs_that_have_them() -> None:
    runs: list[dict[str, Any]] = [
        {"models_digest": "a", "accuracy": 0.25, "fnr": None, "evicted": ["x"], "to": {"0.5": 3}},
        {"models_digest": "b", "accuracy": 0.75, "fnr": None, "evicted": [], "to": {"0.5": None}},
        {"models_digest": "c", "accuracy": None, "fnr": None, "evicted": ["x"], "to": {"0.5": 5}},
    ]
    result = averaged(runs)
    spread = result.pop("spread")
    assert result == {
        "accuracy": 0.5,
        "fnr": None,
        "evicted": pytest.approx(2 / 3),
        "to": {"0.5": 4.0},
        "runs": 3,
    }
    assert spread == {"accuracy": pytest.approx(0.125**0.5), "evicted": pytest.approx(3**-0.5)}
    assert averaged(runs[:1])["spread"] == {}


def test_example_in_the_manual_is_a_valid_sweep() -> None:
    manual = (Path(__file__).parents[3] / "docs/simulation.md").read_text()
    (example,) = re.findall(r"```toml\n\[sweep\]\n(.*?)```", manual, re.S)
    assert [axis.key for axis in sweep(example).axes] == ["lambda", "rule", "count"]


@pytest.mark.parametrize(
    ("axes", "changes"),
    [("server.f = [1]\nseeds = [1, 2]", {"seed": 9}), ("rounds = [1, 2]", {"rounds": 5})],
)
def test_parameters_set_by_a_sweep_cannot_be_overridden(
    axes: str, changes: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "small.toml"
    path.write_text(f"{BASE}\n[sweep]\n{axes}")
    assert Sweep.load(path) is not None
    with pytest.raises(ConfigurationError, match=f"sweep\\] sets {next(iter(changes))}: change"):
        Sweep.load(path, **changes)


def test_sweep_that_is_not_a_table_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(f"sweep = 3\n{BASE}")
    with pytest.raises(ConfigurationError, match="sweep: a table of parameters"):
        Sweep.load(path)


@pytest.mark.parametrize("name", [name for name in shipped() if Sweep.load(name) is not None])
def test_shipped_sweeps_are_valid(name: str) -> None:
    result = Sweep.load(name)
    assert result is not None
    assert result.points(validate)
