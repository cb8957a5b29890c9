"""`rampart track` of a live run: each round is tracked as it ends, despite restarts."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.reports.run_reader import RunReader
from rampart_fl.services.console.tracking.live import track_live
from rampart_fl.services.console.tracking.mlflow import MlflowTracker
from rampart_fl.services.console.tracking.tensorboard import TensorBoardTracker
from rampart_fl.services.console.tracking.tracker import Tracker
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, experiment, host, until
from tests.services.console.tracking.test_track import Notebook, needed

pytestmark = pytest.mark.processes
NAMES = ["ada", "bob", "cleo"]
Rampart = Callable[..., Any]


@pytest.fixture
def hosted(tmp_path: Path, redis_url: str) -> Iterator[Hosted]:
    """A federation whose clients wait in the second of three rounds."""
    with host(experiment(3, rounds=3, server=FEDCAP), tmp_path, redis_url) as hosted:
        hosted.hold = Hold(1)
        hosted.scripted(NAMES, hold=hosted.hold)
        hosted.wait("collecting", 1)
        yield hosted


@contextmanager
def tracked(hosted: Hosted, tracker: Tracker, rounds: Sequence[int] = (0, 1, 2)) -> Iterator[None]:
    """Tracks the run in a thread; on exit, the run continues, and is tracked to its end.

    The finished run must have the records of the given rounds.
    """
    token = hosted.settings.operator_token.get_secret_value()
    operator = Operator(hosted.url, token, patience=60.0)
    reader = RunReader.of(operator.run(hosted.run.id))
    with ThreadPoolExecutor(1) as thread:
        tracking = thread.submit(track_live, reader, tracker)
        try:
            yield
        finally:
            hosted.hold.on = False
            run = tracking.result(120)
            operator.close()
    assert [record.round for record in run.records] == list(rounds)


def test_each_round_is_tracked_once_even_if_the_aggregator_restarts(hosted: Hosted) -> None:
    notebook = Notebook()
    with tracked(hosted, notebook):
        until(lambda: [number for number, *_ in notebook.rounds] == [0])
        assert notebook.parameters["rounds"] == "3"
        hosted.restart()
        hosted.run.decide("bob", "evict", "a test")
    assert [number for number, *_ in notebook.rounds] == [0, 1, 2]
    records = hosted.run.rounds()
    assert [at for *_, at in notebook.rounds] == [record.closed_at for record in records]
    acts = [events for _, _, events, _ in notebook.rounds]
    assert acts == [{}, {"bob": "evicted: a test"}, {}]
    assert [metrics["updates"] for _, metrics, _, _ in notebook.rounds] == [3.0, 2.0, 2.0]
    assert notebook.end_facts["evicted"] == "bob"
    provenance = json.loads(notebook.files["provenance.json"])
    assert provenance["run"] == hosted.run.id
    assert set(provenance["models"]) == {"global", "ada", "cleo"}
    assert len(notebook.files["models/global.safetensors"]) > 0
    assert not notebook.failed


def test_live_tracking_of_a_finished_run_is_complete(hosted: Hosted) -> None:
    hosted.hold.on = False
    hosted.wait()
    notebook = Notebook()
    with tracked(hosted, notebook):
        pass
    assert [number for number, *_ in notebook.rounds] == [0, 1, 2]


def test_live_tracking_begins_with_the_first_round_whose_record_is_kept(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rampart_fl.services.console.connection.operated_run.PAGE", 1)
    hosted.hold.on = False
    hosted.wait()
    hosted.forget(0)
    # In a long run, the events of old rounds are no longer kept, either.
    hosted.of_run(lambda run: run.state.redis.client.xtrim(run.keys.events, 1, approximate=False))
    notebook = Notebook()
    with tracked(hosted, notebook, [1, 2]):
        pass
    assert [number for number, *_ in notebook.rounds] == [1, 2]


def test_track_refuses_a_name_that_is_neither_a_folder_nor_a_run(
    rampart: Rampart, tmp_path: Path
) -> None:
    for name in ("no/such/folder", str(tmp_path / "none")):
        said = rampart("track", name, str(tmp_path / "to"), "--to", "tensorboard")
        assert said.code == 1
        assert f"{name} is neither a folder nor the id of a run" in said.err


@pytest.mark.filterwarnings("default::DeprecationWarning")  # TensorBoard's own.
def test_tensorboard_shows_a_round_before_the_run_has_ended(hosted: Hosted, tmp_path: Path) -> None:
    needed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def steps() -> list[int]:
        events: Any = EventAccumulator(str(tmp_path / "board/live"))
        events.Reload()
        shown = "round/updates" in events.Tags()["scalars"]
        return [e.step for e in events.Scalars("round/updates")] if shown else []

    with tracked(hosted, TensorBoardTracker(tmp_path / "board", "live")):
        until(lambda: steps() == [0])
    assert steps() == [0, 1, 2]
    assert (tmp_path / "board/live/models/global.safetensors").is_file()


@pytest.mark.filterwarnings("ignore:.*noload.*")  # MLflow's own use of SQLAlchemy.
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning")
def test_mlflow_shows_a_round_before_the_run_has_ended(hosted: Hosted, tmp_path: Path) -> None:
    needed("mlflow")
    import mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(tracking_uri=uri)
    number = client.create_experiment("live", artifact_location=f"{tmp_path}/artifacts")

    def steps() -> list[int]:
        result = client.search_runs([number])
        return [
            metric.step
            for run in result
            for metric in client.get_metric_history(run.info.run_id, "updates")
        ]

    with tracked(hosted, MlflowTracker(uri, "live", "live")):
        until(lambda: steps() == [0])
    assert steps() == [0, 1, 2]
    (run,) = client.search_runs([number])
    assert run.info.status == "FINISHED"
    assert list((tmp_path / "artifacts").rglob("global.safetensors"))
