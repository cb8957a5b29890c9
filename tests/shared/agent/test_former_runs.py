"""What a client keeps on its disk of its former runs."""

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rampart_fl.shared.agent.former_runs import tidy_former_runs
from rampart_fl.shared.agent.learning_client import INITIAL, RunFiles
from rampart_fl.shared.protocol.messages import Ticket, TicketKind

DIGEST = "d" * 64


def left(runs: Path, run: str, personal: float | None, kind: TicketKind = "train") -> None:
    """Files of a run that ended while the client was offline."""
    ticket = Ticket(kind=kind, run=run, models={"model": DIGEST}, experiment=DIGEST)
    state = {} if personal is None else {"model": torch.tensor([personal])}
    RunFiles(runs / run).keep(ticket, b"the bytes of an upload", state)
    (runs / run / INITIAL).write_bytes(b"a model")


def names(runs: Path) -> dict[str, list[str]]:
    """The files of each run."""
    return {path.name: sorted(f.name for f in path.iterdir()) for path in sorted(runs.iterdir())}


def test_uploads_of_former_runs_are_deleted_and_personal_models_are_kept(tmp_path: Path) -> None:
    left(tmp_path, "one-1", 1.5)
    left(tmp_path, "two-2", None)
    left(tmp_path, "three-3", None, "probe")
    left(tmp_path, "four-4", 4.5)
    for _ in range(2):
        tidy_former_runs(tmp_path, "four-4")
        kept = {"one-1": ["personal.safetensors"], "four-4": [INITIAL, "train.kept"]}
        assert names(tmp_path) == dict(sorted(kept.items()))
    assert load_file(tmp_path / "one-1/personal.safetensors")["model"].tolist() == [1.5]
    assert RunFiles(tmp_path / "four-4").personal() is not None


@pytest.mark.parametrize(("models_kept", "kept"), [(None, 3), (5, 3), (2, 2), (0, 0)])
def test_personal_models_of_the_newest_runs_are_kept(
    tmp_path: Path, models_kept: int | None, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for run in ("a-8", "b-9", "no-model-10", "c-11", "d-12"):
        left(tmp_path, run, None if run.startswith("no") else 1.0)
    tidy_former_runs(tmp_path, "d-12", models_kept)
    assert list(names(tmp_path)) == [*["a-8", "b-9", "c-11"][3 - kept :], "d-12"]
    deleted = [vars(line)["run"] for line in caplog.records if "was deleted" in line.message]
    assert deleted == ["c-11", "b-9", "a-8"][kept:]


def test_files_that_the_agent_did_not_write_are_kept(tmp_path: Path) -> None:
    left(tmp_path, "one-1", 1.0)
    left(tmp_path, "two-2", 1.0)
    (tmp_path / "one-1/notes.txt").write_text("mine")
    (tmp_path / "my-models").mkdir()
    (tmp_path / "archive-1").write_text("a file")
    tidy_former_runs(tmp_path, "two-2", 0)
    assert (tmp_path / "one-1/notes.txt").read_text() == "mine"
    assert [path.name for path in (tmp_path / "one-1").iterdir()] == ["notes.txt"]
    assert (tmp_path / "my-models").is_dir() and (tmp_path / "archive-1").is_file()


@pytest.mark.parametrize("content", [b"", b"{}\n", b"no JSON\n", b'{"length": 0}\nno tensors'])
def test_a_damaged_file_stays_and_does_not_stop_the_client(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    left(tmp_path, "one-1", 1.0)
    left(tmp_path, "two-2", 1.0)
    (tmp_path / "two-2/train.kept").write_bytes(content)
    tidy_former_runs(tmp_path, "three-3")
    assert (tmp_path / "two-2/train.kept").read_bytes() == content
    assert "the files of a former run cannot be read" in caplog.text
    assert names(tmp_path)["one-1"] == ["personal.safetensors"]


def test_a_client_without_former_runs_has_nothing_to_tidy(tmp_path: Path) -> None:
    tidy_former_runs(tmp_path / "runs", "one-1")
    assert list(tmp_path.iterdir()) == []
