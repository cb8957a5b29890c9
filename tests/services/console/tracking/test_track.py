"""`rampart track`: the data that trackers receive, and the errors."""

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from rampart_fl.services.console.stored_run import read_run
from rampart_fl.services.console.tracking.track import track
from tests.services.console.tracking.conftest import DIGEST, MODEL

Rampart = Callable[..., Any]


class Notebook:
    """A tracker that records what it receives."""

    def __init__(self, breaks_in: int | None = None) -> None:
        self.breaks_in, self.failed = breaks_in, False
        self.rounds: list[tuple[int, dict[str, float], dict[str, str], float]] = []

    def begin(self, parameters: Mapping[str, str], facts: Mapping[str, str], at: float) -> None:
        self.parameters, self.facts, self.began = dict(parameters), dict(facts), at

    def round(
        self, number: int, metrics: Mapping[str, float], events: Mapping[str, str], at: float
    ) -> None:
        if number == self.breaks_in:
            raise OSError("disk full")
        self.rounds.append((number, dict(metrics), dict(events), at))

    def end(
        self, figures: Mapping[str, float], facts: Mapping[str, str], folder: Path, at: float
    ) -> None:
        self.figures, self.end_facts, self.ended = dict(figures), dict(facts), at
        paths = (path for path in folder.rglob("*") if path.is_file())
        self.files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    def fail(self) -> None:
        self.failed = True


def test_tracker_receives_all_data_of_a_run(finished: Path) -> None:
    run, notebook = read_run(finished), Notebook()
    track(run, notebook)
    assert notebook.parameters["data.clients"] == "3"
    assert notebook.parameters["model.hidden"] == "[8]"
    assert notebook.facts["experiment_digest"] == run.experiment.digest()
    assert (notebook.began, notebook.ended) == (1000.0, 1001.5)
    first, second = notebook.rounds
    assert first == (
        0,
        {
            "accuracy_local": 0.5,
            "verdicts_accepted": 1.0,
            "updates": 3.0,
            "examined": 0.0,
            "late": 0.0,
            "absent": 0.0,
            "failed": 0.0,
            "median_norm": 1.5,
            "seconds": 0.5,
        },
        {},
        1000.5,
    )
    assert second[1]["accuracy_local"] == 0.75
    assert second[2] == {"client-02": "evicted in round 1 by robust_distance: far | off"}
    assert notebook.figures == {"accuracy": 0.75}
    assert notebook.end_facts == {"evicted": "client-02", "blobs_digest": "d" * 64}
    assert notebook.files["models/global.safetensors"] == MODEL
    provenance = json.loads(notebook.files["provenance.json"])
    assert provenance["models"] == {"global": DIGEST}
    assert provenance["blobs_digest"] == "d" * 64 and "models_digest" not in provenance
    records = (finished / "rounds.jsonl").read_bytes()
    assert provenance["files"]["rounds.jsonl"] == hashlib.sha256(records).hexdigest()
    assert notebook.files["rounds.jsonl"] == records
    assert not notebook.failed


def test_partially_tracked_run_is_marked_as_failed(finished: Path) -> None:
    notebook = Notebook(breaks_in=1)
    with pytest.raises(OSError, match="disk full"):
        track(read_run(finished), notebook)
    assert notebook.failed


def test_a_damaged_model_is_refused(finished: Path, rampart: Rampart, tmp_path: Path) -> None:
    (blob,) = finished.glob("blobs/*/*/*")
    blob.write_bytes(b"other bytes")
    with pytest.raises(Exception, match="is damaged"):
        track(read_run(finished), Notebook())


def test_missing_tracking_library_is_reported_with_the_install_command(
    finished: Path, rampart: Rampart, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for library, module in {"mlflow": "mlflow", "tensorboard": "torch.utils.tensorboard"}.items():
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delattr(torch.utils, library, raising=False)  # Another test has imported it.
        said = rampart("track", str(finished), str(tmp_path / "to"), "--to", library)
        assert said.code == 1
        assert f"pip install 'rampart-fl[{library}]'" in said.err


def needed(library: str) -> None:
    """Skips a test whose library is not installed."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: nobody checks what rampart track writes with it")


@pytest.mark.filterwarnings("ignore:.*noload.*")  # MLflow's own use of SQLAlchemy.
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning")
@pytest.mark.processes
def test_mlflow_contains_the_tracked_run(finished: Path, rampart: Rampart, tmp_path: Path) -> None:
    needed("mlflow")
    import mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(tracking_uri=uri)
    place = f"{tmp_path}/artifacts"
    client.create_experiment("small", artifact_location=place)
    said = rampart("track", str(finished), uri, "--to", "mlflow")
    assert said.code == 0, said.err
    assert said.out == "small-1: 2 rounds, 1 models\n"
    experiment = client.get_experiment_by_name("small")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "small-1")
    assert (run.info.start_time, run.info.end_time) == (1_000_000, 1_001_500)
    assert run.data.params["data.clients"] == "3"
    assert run.data.tags["rampart.evicted"] == "client-02"
    assert run.data.tags["rampart.barred.client-02"].startswith("evicted in round 1")
    assert run.data.metrics["final.accuracy"] == 0.75
    history = client.get_metric_history(run.info.run_id, "accuracy_local")
    assert [(m.step, m.value, m.timestamp) for m in history] == [
        (0, 0.5, 1_000_500),
        (1, 0.75, 1_001_500),
    ]
    (model,) = Path(place).rglob("global.safetensors")
    assert model.read_bytes() == MODEL


@pytest.mark.filterwarnings("default::DeprecationWarning")  # TensorBoard's own.
def test_tensorboard_contains_the_tracked_run(
    finished: Path, rampart: Rampart, tmp_path: Path
) -> None:
    needed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = tmp_path / "board"
    arguments = ("track", str(finished), str(board), "--to", "tensorboard")
    said = rampart(*arguments)
    assert said.code == 0, said.err
    events: Any = EventAccumulator(str(board / "small-1"))
    events.Reload()
    scalars = [(e.step, e.value, e.wall_time) for e in events.Scalars("accuracy/local")]
    assert scalars == [(0, 0.5, 1000.5), (1, 0.75, 1001.5)]
    assert [e.value for e in events.Scalars("final/accuracy")] == [0.75]
    (barred,) = events.Tensors("barred/text_summary")
    (text,) = barred.tensor_proto.string_val
    assert "| client-02 | evicted in round 1 by robust_distance: far \\| off |" in text.decode()
    assert (board / "small-1/models/global.safetensors").read_bytes() == MODEL
    assert json.loads((board / "small-1/provenance.json").read_text())["models"]
    again = rampart(*arguments)
    assert again.code == 1 and "a run can be tracked only once" in again.err
