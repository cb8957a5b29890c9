"""`rampart serve` and `shutdown`: a restarted federation keeps its runs and its clients."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.processes import free_port
from tests.services.console.commands.conftest import good

pytestmark = [pytest.mark.processes, pytest.mark.long]
Rampart = Callable[..., Any]
EXPERIMENT = """
name = "two"
rounds = 1
[data]
dataset = "digits"
clients = 2
[model]
name = "mlp"
hidden = [4]
[training]
epochs = 1
"""


def test_federation_keeps_its_runs_and_clients_after_shutdown_and_restart(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RAMPART_AGGREGATOR", "RAMPART_OPERATOR_TOKEN", "RAMPART_FEDERATION"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "two.toml").write_text(EXPERIMENT)
    folder = ServedFolder(tmp_path / "runs/federation")
    serve = ("serve", "--agents", "2", "--detach", "--port", str(free_port()), "--json")
    try:
        started = json.loads(good(rampart(*serve)))
        assert started["pid"] == folder.server()
        again = rampart(*serve)
        assert (again.code, f"process {started['pid']} already serves" in again.err) == (1, True)
        good(rampart("run", "two.toml", "--follow"))
        members = json.loads(good(rampart("clients", "--json")))
        assert sorted(one["slot"] for one in members) == [0, 1]

        assert json.loads(good(rampart("shutdown", "--json"))) == {"ended": True}
        assert "no federation in ./runs" in rampart("runs").err
        good(rampart(*serve))
        content = json.loads(good(rampart("run", "two.toml", "--follow", "--json")))
        assert (content["run"], content["state"]) == ("two-2", "finished")
        later = json.loads(good(rampart("clients", "--json")))
        assert [one["client_id"] for one in later] == [one["client_id"] for one in members]
        processes = [int(path.read_text()) for path in (folder.path / "pids").iterdir()]
        assert len(processes) == 3
    finally:
        good(rampart("shutdown"))
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert good(rampart("shutdown")) == "no federation is served from runs/federation\n"


def test_federation_in_another_folder_is_found_through_the_variable(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RAMPART_AGGREGATOR", "RAMPART_OPERATOR_TOKEN", "RAMPART_FEDERATION"):
        monkeypatch.delenv(name, raising=False)
    port = str(free_port())
    try:
        hint = f"for other commands: export RAMPART_FEDERATION={tmp_path}/fed\n"
        said = good(rampart("serve", "--folder", "fed", "--detach", "--port", port))
        assert said == f"http://127.0.0.1:{port} is ready\n{hint}"
        assert "no federation in ./runs" in rampart("runs").err
        monkeypatch.setenv("RAMPART_FEDERATION", "fed")
        assert json.loads(good(rampart("runs", "--json"))) == []
    finally:
        assert good(rampart("shutdown")) == "the federation was stopped\n"
