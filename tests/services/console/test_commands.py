"""Every command of `rampart` with a running federation."""

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.console.app import app
from rampart_fl.services.console.commands import connection
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.shared.agent.http_client import SOFTWARE
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord
from rampart_fl.shared.protocol.runs import RunStatus
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, experiment, host

NAMES = ["ada", "bob", "cleo"]
COMMANDS = [command.callback.__name__ for command in app.registered_commands]
Rampart = Callable[..., Any]
BEGINNING = ["founded", "accepted", "accepted", "accepted"]
"""The types of the first events of the run."""


@pytest.fixture
def hosted(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    """A federation that has finished round 0 and waits in round 1; the console knows it."""
    server = {**FEDCAP, "detectors": [{"name": "norm_bound", "threshold": 5}]}
    with host(experiment(3, server=server), tmp_path, redis_url) as hosted:
        hosted.hold = Hold(1)
        hosted.scripted(NAMES, hold=hosted.hold)
        hosted.wait("collecting", 1)
        monkeypatch.setenv("RAMPART_AGGREGATOR", hosted.url)
        token = hosted.settings.operator_token.get_secret_value()
        monkeypatch.setenv("RAMPART_OPERATOR_TOKEN", token)
        yield hosted


def parsed(said: Any) -> Any:
    """The one line of JSON that a command printed."""
    assert said.code == 0, said.err
    (line,) = said.out.splitlines()
    return json.loads(line)


def test_join_tokens_can_fix_the_clients_id_and_sample_cap(
    hosted: Hosted, rampart: Rampart
) -> None:
    made = parsed(rampart("tokens", "--id", "dora", "--id", "eve", "--sample-cap", "500", "--json"))
    joined = []
    for token in made["tokens"]:
        bearer = {"Authorization": f"Bearer {token}"}
        body = {"token_hash": token_hash(mint())}
        reply = httpx.post(f"{hosted.url}/v1/clients", headers=bearer, json=body)
        joined.append((reply.json()["client_id"], reply.json()["sample_cap"]))
    assert joined == [("dora", 500), ("eve", 500)]
    (anybody,) = parsed(rampart("tokens", "--sample-cap", "7", "--json"))["tokens"]
    bearer = {"Authorization": f"Bearer {anybody}"}
    body = {"token_hash": token_hash(mint())}
    reply = httpx.post(f"{hosted.url}/v1/clients", headers=bearer, json=body)
    assert reply.json()["sample_cap"] == 7
    refused = rampart("tokens", "--id", "fay", "--count", "2")
    assert refused.code == 2
    assert "omit --count" in refused.err
    assert (
        "omit --id, --sample-cap"
        in rampart("tokens", "--revoke", anybody, "--id", "fay", "--sample-cap", "7").err
    )


@pytest.mark.slow
def test_every_command_has_help(rampart: Rampart) -> None:
    listed = rampart("--help").out
    for command in COMMANDS:
        said = rampart(command, "--help")
        assert said.code == 0
        assert command in listed
        assert f"{command} [OPTIONS]" in said.out
    for command in ("list", "add", "revoke"):
        assert f"operators {command} [OPTIONS]" in rampart("operators", command, "--help").out
    assert {"up", "status", "rounds", "clients", "evict", "reinstate", "watch"} <= {*COMMANDS}


def test_version_option_prints_the_installed_version(rampart: Rampart) -> None:
    said = rampart("--version")
    assert (said.code, said.out) == (0, f"rampart-fl {version('rampart-fl')}\n")


def test_commands_show_and_control_a_running_federation(hosted: Hosted, rampart: Rampart) -> None:
    # All steps use one federation; each step depends on the steps before it.
    while hosted.run.status().online < 3:
        hosted.wait("collecting", 1)
    status = parsed(rampart("status", "--json"))
    assert (status["phase"], status["round"], status["online"]) == ("collecting", 1, 3)
    assert "collecting" in rampart("status").out

    def held(reason: str) -> None:
        """Records as the worker does that the run has to wait."""

        async def hold(stores: Stores) -> None:
            fence = int(await stores.redis.ask("get", stores.keys.fence))
            await stores.of_run(hosted.run.id).state.hold(fence, reason)

        hosted.stores(hold)

    held("disk: too full")
    assert "waits_for    disk: too full\n" in rampart("status").out
    assert parsed(rampart("status", "--json"))["waits_for"] == "disk: too full"
    assert parsed(rampart("runs", "--json"))[0]["waits_for"] == "disk: too full"
    assert "waits for disk: too full" in rampart("runs").out
    held("")
    assert "waits_for\n" in rampart("status").out

    (record,) = parsed(rampart("rounds", "--json"))
    assert record == hosted.record(0).model_dump(mode="json")
    assert parsed(rampart("rounds", "0", "--json")) == record
    assert parsed(rampart("rounds", "--last", "1", "--json")) == [record], "round 1 is open"
    shown = rampart("rounds").out
    assert "published" in shown
    shown = rampart("rounds", "0").out
    assert all(name in shown for name in [*NAMES, "accepted", "norm_bound"])

    clients = parsed(rampart("clients", "--json"))
    assert [client["client_id"] for client in clients] == NAMES
    assert {client["software"] for client in clients} == {SOFTWARE}
    assert all(name in rampart("clients").out for name in NAMES)

    assert len(parsed(rampart("tokens", "--count", "2", "--json"))["tokens"]) == 2
    assert len(rampart("tokens", "--count", "3").out.splitlines()) == 3

    assert parsed(rampart("evict", "bob", "--reason", "odd", "--json"))["evicted"]
    assert "odd" in rampart("clients").out
    assert "may take part" in rampart("reinstate", "bob").out
    assert not parsed(rampart("reinstate", "bob", "--json"))["evicted"]
    assert "evicted" in rampart("evict", "bob").out
    # A client that is barred from the federation stays barred if only a run readmits it.
    assert "is barred" in rampart("evict", "cleo", "--everywhere", "--reason", "stolen").out
    said = rampart("reinstate", "cleo").out
    assert said == (
        f"cleo is no longer evicted from run {hosted.run.id}, but is still barred from the "
        "federation (stolen); --everywhere readmits it\n"
    )
    assert parsed(rampart("reinstate", "cleo", "--json"))["barred"]["reason"] == "stolen"
    assert "cleo barred from the federation: stolen" in rampart("clients").out
    assert "may take part" in rampart("reinstate", "cleo", "--everywhere").out

    assert "is paused" in rampart("pause").out
    assert parsed(rampart("resume", "--json"))["state"] == "running"
    assert parsed(rampart("pause", "--json"))["state"] == "paused"
    assert "is running" in rampart("resume").out

    hosted.hold.on = False
    hosted.wait()
    for last, expected in (("1", [1]), ("2", [0, 1]), ("1001", [0, 1])):
        listed = parsed(rampart("rounds", "--last", last, "--json"))
        assert [one["round"] for one in listed] == expected
    assert rampart("stop").code == 1
    assert parsed(rampart("revoke", "ada", "--json")) == {"client_id": "ada", "revoked": True}
    assert "ada" in rampart("revoke", "ada").out
    bearer = {"Authorization": f"Bearer {hosted.join('ada').token}"}
    assert httpx.post(f"{hosted.url}/v1/heartbeat", headers=bearer).status_code == 401
    assert "finished" in rampart("stop").err
    said = rampart("evict", "cleo")
    assert said.code == 1
    assert "is finished, so an eviction would have no effect; --everywhere bars" in said.err
    assert [one["client_id"] for one in parsed(rampart("clients", "--json")) if one["evicted"]] == [
        "bob"
    ]
    assert rampart("reinstate", "bob").out == (
        f"bob may download the final models of run {hosted.run.id}, which has ended\n"
    )


def test_commands_decide_proposals_and_switch_the_mode(
    tmp_path: Path, redis_url: str, rampart: Rampart, monkeypatch: pytest.MonkeyPatch
) -> None:
    detectors = [{"name": "norm_bound", "threshold": 5}]
    eviction = {"by": "operator", "patience": 9}
    server = {**FEDCAP, "detectors": detectors, "eviction": eviction}
    with host(experiment(5, server=server), tmp_path, redis_url) as hosted:
        hold = Hold(1)
        hosted.scripted(NAMES, hold=hold)
        hosted.scripted(["mallory", "oscar"], scale=10.0)
        hosted.wait("collecting", 1)
        monkeypatch.setenv("RAMPART_AGGREGATOR", hosted.url)
        token = hosted.settings.operator_token.get_secret_value()
        monkeypatch.setenv("RAMPART_OPERATOR_TOKEN", token)
        monkeypatch.setenv("COLUMNS", "200")

        waiting = parsed(rampart("proposals", "--json"))
        assert [one["client_id"] for one in waiting] == ["mallory", "oscar"]
        lines = rampart("proposals").out.splitlines()
        assert lines[0].startswith(
            "mallory proposed in round 0, expires in round 10: norm_bound: norm of"
        )
        assert "proposed, until round 10: norm of" in rampart("clients").out
        assert "is evicted" in rampart("confirm", "mallory", "--reason", "I looked").out
        assert "evicted: norm of" in rampart("clients").out
        assert "may take part" in rampart("dismiss", "oscar").out
        assert rampart("proposals").out == "no proposals\n"
        assert "there is no proposal to evict oscar" in rampart("confirm", "oscar").err

        assert parsed(rampart("status", "--json"))["mode"] == "evict"
        assert "decides in mode reject from" in rampart("mode", "reject", "--reason", "x").out
        assert parsed(rampart("mode", "observe", "--json"))["mode"] == "observe"
        assert rampart("mode", "guess").code == 2
        hold.on = False
        hosted.wait()


def test_rounds_and_status_are_readable_on_a_narrow_terminal(
    rampart: Rampart, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "1.36 of the tolerated distance and 3.91 of the tolerated movement above the medians"
    verdicts = [
        VerdictRecord(
            client=f"client-b9dd51e23ce{number}",
            decision="evicted" if number else "accepted",
            detector="robust_distance",
            score=1.36,
            threshold=1.0,
            reason=reason,
        )
        for number in range(2)
    ]
    missing, late = ["client-02", "client-03"], ["client-03"]
    record = RoundRecord(
        round=4,
        status="published",
        missing=missing,
        late=late,
        examined=["client-04"],
        verdicts=verdicts,
    )
    status = RunStatus(
        run="one-1",
        name="one",
        experiment="ab" * 32,
        status="running",
        phase="collecting",
        round=5,
        rounds=9,
        deadline=time.time() + 61,
        evicted=["client-01"],
        models={"global": "cd" * 32},
    )
    records = [record]
    run = SimpleNamespace(
        rounds=lambda *_: records, records=lambda *_, **__: iter(records), status=lambda: status
    )
    known = SimpleNamespace(run=lambda _: run)
    monkeypatch.setattr("rampart_fl.services.console.commands.monitoring.connect", lambda *_: known)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")  # A terminal of 80 columns, without codes for bold text.
    lines = rampart("rounds", "4").out.splitlines()
    for verdict in verdicts:
        assert any(f"│ {verdict.client} │ {verdict.decision}" in line for line in lines)
    assert lines[-4] == f"client-b9dd51e23ce1 evicted: {reason}"
    assert lines[-3:-1] == ["late: client-03", "absent: client-02"]
    assert lines[-1] == "judged, but not aggregated: client-04"
    assert len(lines) < 14
    listed = rampart("rounds").out
    assert all(word in listed for word in ("published", "received", "personal"))
    assert "backdoor" not in listed
    assert listed.splitlines()[-1] == "round 4 left out client-b9dd51e23ce1"
    records.clear()
    assert rampart("rounds").out == "no round has ended\n"
    shown = dict(
        line.split(maxsplit=1) for line in rampart("status").out.splitlines() if " " in line
    )
    assert re.fullmatch(r"in (60|61) s", shown["deadline"])
    assert (shown["models"], shown["evicted"]) == ("global cdcdcdcdcdcd", "client-01")


def test_watch_prints_every_event_once_although_the_aggregator_restarts(
    hosted: Hosted, rampart: Rampart
) -> None:
    def restart() -> None:
        hosted.restart()
        hosted.hold.on = False

    timer = threading.Timer(0.5, restart)
    timer.start()
    said = rampart("watch", "--json")
    timer.join()
    assert said.code == 0, said.err
    events = [json.loads(line) for line in said.out.splitlines()]
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-1], kinds.count("published")) == ("founded", "ended", 2)
    positions = [tuple(map(int, event["id"].split("-"))) for event in events]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize("flags", [["--json"], ["--events"], []])
def test_watch_follows_a_run_to_its_end(hosted: Hosted, rampart: Rampart, flags: list[str]) -> None:
    def go_on() -> None:
        hosted.hold.on = False

    timer = threading.Timer(0.5, go_on)
    timer.start()
    said = rampart("watch", *flags)
    timer.join()
    assert said.code == 0
    assert hosted.run.status().phase == "done"
    if flags == ["--json"]:
        events = [json.loads(line) for line in said.out.splitlines()]
        assert {"id", "type"} <= events[-1].keys()
        assert events[-1]["type"] == "ended"
        assert {e["client"] for e in events if e["type"] == "evaluation"} == {*NAMES}
        assert not any("receipt" in event for event in events)
    elif flags:
        assert "type=ended" in said.out.splitlines()[-1]
    else:
        assert "round 1" in said.err
    # `watch` returns immediately if the run has already ended, and prints the same events.
    again = rampart("watch", *flags)
    assert again.code == 0
    assert again.out == said.out
    if flags:
        assert [event["type"] for event in islice(hosted.run.events(), 4)] == BEGINNING

        async def forget(stores: Stores) -> None:
            await stores.redis.ask("delete", stores.of_run(hosted.run.id).state.keys.events)

        hosted.stores(forget)
        late = rampart("watch", *flags)
        expected = f"the events of {hosted.run.id} are no longer kept\n"
        assert (late.code, late.out, late.err) == (0, "", expected)


def test_failed_commands_print_the_reason_in_one_line(hosted: Hosted, rampart: Rampart) -> None:
    for command, text in [
        (["evict", "nobody"], "no client nobody"),
        (["reinstate", "nobody"], "no client nobody"),
        (["revoke", "nobody"], "no client nobody"),
        (["rounds", "7"], "round 7 has not ended"),
        (["status", "--token", "not-the-operators"], "token"),
        (["watch", "--events", "--token", "not-the-operators"], "token"),
    ]:
        said = rampart(*command)
        assert said.code == 1
        assert said.out == ""
        assert text in said.err
        assert len(said.err.splitlines()) == 1
    said = rampart("evict")
    assert said.code == 2


@pytest.mark.slow
def test_every_command_fails_if_the_aggregator_is_unreachable(
    rampart: Rampart, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Operator):
        def __init__(self, url: str, token: str, ca: str | None, _: float) -> None:
            super().__init__(url, token, ca, patience=0.01)

    monkeypatch.setattr(connection, "Operator", Impatient)
    where = ["--url", "http://127.0.0.1:1", "--token", "a" * 20]
    commands = ["status", "audit", "rounds", "clients", "evict", "reinstate", "tokens", "proposals"]
    about = {"evict", "reinstate", "revoke", "confirm", "dismiss"}
    for command in {*commands, *about, "mode", "pause", "resume", "stop", "watch"}:
        arguments = ["ada"] if command in about else ["observe"] if command == "mode" else []
        said = rampart(command, *arguments, *where)
        assert said.code == 1
        assert "http://127.0.0.1:1 does not answer" in said.err
    for arguments in (["list"], ["add", "vera", "--role", "viewer"], ["revoke", "vera"]):
        said = rampart("operators", *arguments, *where)
        assert (said.code, "http://127.0.0.1:1 does not answer" in said.err) == (1, True)
    assert rampart("watch", "--events", *where).code == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--url", "127.0.0.1:8440"], "http://"),
        (["--token", "é" * 20], "the operator token is empty, or contains characters"),
        (["--token", "a" * 20 + "\n"], "that are not allowed in a token"),
        (["--ca", "away.pem"], "CA bundle 'away.pem': No such file or directory"),
    ],
)
def test_invalid_connection_settings_fail_without_connecting(
    rampart: Rampart, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    addresses: list[object] = []

    def refuse(address: object, *_: object, **__: object) -> None:
        addresses.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    said = rampart("status", "--url", "http://127.0.0.1:1", "--token", "a" * 20, *arguments)
    assert said.code == 1
    assert text in said.err
    assert not addresses


def test_failure_to_create_the_run_folder_is_reported_in_one_line(
    rampart: Rampart, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    said = rampart("up", "digits-benign", "--folder", str(tmp_path / "file" / "runs"))
    assert said.code == 1
    folder = tmp_path / "file" / "runs"
    assert said.err == f"error: cannot write to the folder {folder}: Not a directory\n"


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "digits-benign", "--out"),
        ("simulate", "mean-estimation-sweep", "--out"),
        ("certify", "digits-flcert", "--out"),
        ("matrix", "digits-matrix", "--out"),
    ],
    ids=" ".join,
)
def test_file_in_place_of_a_folder_for_results_is_reported_before_any_run(
    rampart: Rampart, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "file"
    file.touch()
    said = rampart(*command, str(file))
    why = f"error: cannot write to the folder {file}: it is a file\n"
    assert (said.code, said.err) == (1, why)  # No progress bar: no run has begun.


def test_missing_connection_settings_are_named(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("RAMPART_AGGREGATOR", "RAMPART_OPERATOR_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    said = rampart("status")
    assert said.code == 2
    assert "--token" in said.err


def test_commands_find_the_last_run_in_the_current_folder(
    hosted: Hosted, rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"url": hosted.url, "token": hosted.settings.operator_token.get_secret_value()}
    for variable in ("RAMPART_AGGREGATOR", "RAMPART_OPERATOR_TOKEN"):
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "console.json").write_text(json.dumps(known))
    assert parsed(rampart("status", "--json"))["round"] == 1
    dead = tmp_path / "runs" / "killed" / "console.json"
    dead.parent.mkdir()
    dead.write_text(json.dumps({"url": f"http://127.0.0.1:{free_port()}", "token": "a" * 20}))
    later = (run / "console.json").stat().st_mtime + 1
    os.utime(dead, (later, later))
    assert parsed(rampart("status", "--json"))["round"] == 1, "the newest one that runs"
    (run / "console.json").unlink()
    assert "does not answer" in rampart("status").err


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("digits-bening", "did you mean 'digits-benign'?"),
        ("none.toml", "error: no file none.toml\n"),
        ("no/folder", "error: no file no/folder\n"),
        ("/dev", "error: /dev is a folder\n"),
        ("/dev/null", "error: /dev/null is not a file\n"),
    ],
)
def test_unknown_experiment_is_refused_before_anything_starts(
    rampart: Rampart, tmp_path: Path, source: str, text: str
) -> None:
    said = rampart("up", source, "--folder", str(tmp_path / "runs"))
    assert said.code == 1
    assert text in said.err
    assert not (tmp_path / "runs").exists()
