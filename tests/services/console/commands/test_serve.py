"""`rampart serve` and `shutdown`: a restarted federation keeps its runs and its clients."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.processes import free_port
from tests.integration.in_process_federation import until
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


@pytest.mark.parametrize("barred", [True, False])
def test_federation_outlives_clients_that_are_barred_or_revoked(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, barred: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RAMPART_AGGREGATOR", "RAMPART_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "runs/federation"
    log = folder / ("logs/agents-0.log" if barred else "serve.log")
    sign = "waits for SIGTERM" if barred else "agents-0 exited with code 1; waiting"
    serve = ("serve", "--agents", "2", "--detach", "--port", str(free_port()))

    def members() -> list[Any]:
        listed: list[Any] = json.loads(good(rampart("clients", "--everywhere", "--json")))
        return listed

    def process_id() -> int | None:
        """The id of the clients' process; None while it is dead."""
        file = folder / "pids/agents-0"
        return int(file.read_text() or 0) or None if file.exists() else None

    try:
        good(rampart(*serve))
        until(lambda: len(members()) == 2)
        process = process_id()
        for one in members():
            if barred:
                good(rampart("evict", one["client_id"], "--everywhere", "--reason", "stolen"))
            else:
                good(rampart("revoke", one["client_id"]))
        until(lambda: log.read_text().count(sign) >= (1 if barred else 3))
        if barred:
            assert process is not None
            assert process_id() == process
            # After a client is reinstated, its process has to be restarted.
            good(rampart("reinstate", members()[0]["client_id"], "--everywhere", "--reason", "ok"))
            os.kill(process, signal.SIGTERM)
            until(lambda: process_id() not in (None, process))
            good(rampart("evict", members()[0]["client_id"], "--everywhere", "--reason", "no"))
            until(lambda: log.read_text().count(sign) == 2)
        signs = log.read_text().count(sign)
        good(rampart("shutdown"))
        good(rampart(*serve))
        until(lambda: log.read_text().count(sign) > signs)
        assert len(members()) == 2
    finally:
        good(rampart("shutdown"))
