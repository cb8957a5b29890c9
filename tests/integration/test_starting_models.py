"""Runs that start with a model of another run, over HTTP and in simulation."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampart_fl.services.console import testing
from rampart_fl.services.console.connection.operator import OperatorRefused
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.runs import OVER
from rampart_fl.shared.simulation import simulate
from tests.integration.in_process_federation import Hosted, experiment, until, vector

TABLES: dict[str, Any] = {
    "name": "first",
    "seed": 3,
    "rounds": 2,
    "fraction": 0.5,
    "data": {"dataset": "digits", "clients": 4},
    "model": {"name": "mlp", "hidden": [16]},
    "training": {"epochs": 1, "learning_rate": 0.05},
    # A client's upload depends on its own head, which begins as that of the starting model.
    "personalizer": "fedper",
}


def test_run_starts_from_the_last_model_of_another_run(tmp_path: Path) -> None:
    """In the second run, some clients train for the first time in its second round."""
    first = Experiment.from_tables(TABLES)
    start = {"run": "first-1"}
    second = Experiment.from_tables(
        {**TABLES, "name": "second", "seed": 5, "model": {**TABLES["model"], "start": start}}
    )
    with testing.run(first, tmp_path / "federation") as running:
        running.start_clients()
        running.wait("done", patience=120)
        held = running.run.model("global")
        running.run = running.operator.run(running.operator.submit(second).run)
        until(lambda: running.run.info().state in OVER)
        info, records = running.run.info(), running.run.rounds()
        reached = vector(running.run.model("global"))
    assert (info.state, info.reason) == ("finished", "")
    fresh = set(records[1].participants) - set(records[0].participants)
    assert fresh, "nobody trains for the first time in the second round"

    file = tmp_path / "first.safetensors"
    file.write_bytes(held)
    expected = simulate(second.started_from(file))
    assert [r.participants for r in expected.records] == [r.participants for r in records]
    np.testing.assert_allclose(reached, expected.global_D, rtol=0, atol=1e-5)
    drawn = simulate(Experiment.from_tables({**TABLES, "name": "second", "seed": 5}))
    assert not np.allclose(reached, drawn.global_D, atol=1e-2)


def test_missing_starting_model_fails_only_its_run(tmp_path: Path) -> None:
    first = Experiment.from_tables({**TABLES, "rounds": 1})
    start = {"run": "nothing-7"}
    lost = Experiment.from_tables(
        {**TABLES, "name": "lost", "model": {**TABLES["model"], "start": start}}
    )
    with testing.run(first, tmp_path / "federation") as running:
        running.operator.submit(lost)
        running.operator.submit(first)
        running.start_clients()
        last = running.operator.run("first-3")
        until(lambda: last.info().state in OVER)
        info = running.operator.run("lost-2").info()
    assert info.state == "failed"
    assert "there is no run 'nothing-7'" in info.reason


def starting(**start: Any) -> Experiment:
    """A run of two clients that starts with a model."""
    return experiment(2, rounds=2, model={"name": "mlp", "hidden": [4], "start": start})


def test_only_the_last_model_of_a_run_is_kept_by_default(host: Callable[..., Hosted]) -> None:
    hosted = host(experiment(2, rounds=2))
    hosted.scripted(["ada", "bob"])
    hosted.wait()
    last, operator = hosted.model("global"), hosted.operator
    for round_, reason in (
        (0, "the model of run 'scripted-1' after round 0 is not kept; only the models of"),
        (7, "run 'scripted-1' published no model in round 7"),
    ):
        run = operator.run(operator.submit(starting(run="scripted-1", round=round_)).run)
        info = run.await_start()
        assert info.state == "failed"
        assert reason in info.reason
    for start in ({"run": "scripted-1", "round": 1}, {"run": "scripted-1"}):
        hosted.run = operator.run(operator.submit(starting(**start)).run)
        assert hosted.run.await_start().state == "running"
        assert hosted.model("global") == last
        hosted.run.steer("stop")
        until(lambda: hosted.run.info().state in OVER)


def test_models_of_earlier_rounds_are_kept_on_request(host: Callable[..., Hosted]) -> None:
    hosted = host(experiment(2, rounds=4), models_kept=2)
    hosted.scripted(["ada", "bob"])
    hosted.wait()
    operator = hosted.operator
    models = {record.round: record.models["global"] for record in hosted.run.rounds()}
    assert len(set(models.values())) == 4
    digest = sha256(hosted.model("global")).hexdigest()
    assert digest == models[3]
    for round_, state in ((1, "failed"), (2, "running")):
        run = operator.run(operator.submit(starting(run="scripted-1", round=round_)).run)
        assert run.await_start().state == state
    assert sha256(run.model("global")).hexdigest() == models[2]


def test_starting_model_files_outside_the_configured_folder_are_refused(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    hosted = host(experiment(2), start_models=folder)
    (folder / "model").write_bytes(hosted.model("global"))
    (tmp_path / "secret").write_text("not for operators")
    (folder / "link").symlink_to(tmp_path / "secret")
    refusals = set[str]()
    for name in ("secret", "missing", "given/../secret", "given/link"):
        with pytest.raises(OperatorRefused) as refused:
            hosted.operator.submit(starting(file=str(tmp_path / name)))
        refusals.add(str(refused.value).replace(str(tmp_path / name), "PATH"))
    (refusal,) = refusals
    assert f"PATH is not in RAMPART_START_MODELS, the folder {folder}" in refusal
    with pytest.raises(OperatorRefused, match="there is no file"):
        hosted.operator.submit(starting(file=str(folder / "missing")))
    accepted = hosted.operator.submit(starting(file=str(folder / "model")))
    assert accepted.state == "queued"


def test_starting_model_files_are_refused_without_a_configured_folder(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    with pytest.raises(OperatorRefused, match="RAMPART_START_MODELS is not set"):
        host(experiment(2)).operator.submit(starting(file=str(tmp_path / "any")))
