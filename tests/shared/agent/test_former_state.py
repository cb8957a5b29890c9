"""The federation's first run adopts the state that the former version of an agent stored.

`agent-2.json` has the original bytes of the files of an agent that had stored its third update but
not yet sent it, and the agent's ticket.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.shared.agent.former_state import adopt_former_state
from rampart_fl.shared.agent.learning_client import RunFiles
from rampart_fl.shared.agent.run_experiment import run_folder
from rampart_fl.shared.protocol.messages import Ticket

STORED = json.loads((Path(__file__).parents[2] / "schemas/agent-2.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The client's folder, as the former version left it."""
    for name, content in STORED["files"].items():
        (tmp_path / name).write_bytes(base64.b64decode(content))
    return tmp_path


def ticket(run: str, **changed: Any) -> Ticket:
    """The ticket in the format of this version."""
    return Ticket.model_validate({**STORED["ticket"], "run": run, **changed})


@pytest.mark.parametrize("changed", [{}, {"round": 3}], ids=["unsent", "answered"])
def test_former_state_is_adopted_by_the_first_run(folder: Path, changed: dict[str, Any]) -> None:
    first = ticket("digits-1", **changed)
    own = run_folder(folder, first.run)
    for _ in range(2):
        adopt_former_state(folder, own, first)
    assert not list(folder.glob("*.kept"))
    keeper = RunFiles(own)
    assert keeper.upload(first) == (None if changed else b"bytes of an upload")
    trained, probed = keeper.personal(), keeper.personal("probe")
    assert trained is not None and probed is not None
    assert {name: tensor.tolist() for name, tensor in trained.items()} == {
        "model": [0.5, -2.0],
        "steps": 7.0,
    }
    assert probed["model"].tolist() == [1.0, 4.0]


def test_later_run_starts_afresh_and_keeps_the_former_state(folder: Path) -> None:
    later = ticket("digits-11")
    adopt_former_state(folder, run_folder(folder, later.run), later)
    assert {path.name for path in folder.glob("*.kept")} == STORED["files"].keys()
    assert RunFiles(run_folder(folder, later.run)).personal() is None
