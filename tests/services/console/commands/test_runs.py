"""`rampart compare`, `export`, `clients ID` and `run --check` on runs of scripted clients."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.figures.estimate import estimate
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import OVER
from tests.integration.in_process_federation import FEDCAP, Hosted, experiment, host, until
from tests.services.console.commands.conftest import good

Rampart = Callable[..., Any]
FIRST = experiment(2, rounds=3, room=0, server=FEDCAP)
SECOND = experiment(2, rounds=1, room=0, seed=2)


@pytest.fixture
def hosted(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    """A federation whose run `scripted-1` has ended, and whose run `second-2` waits for clients."""
    with host(FIRST, tmp_path, redis_url, start_models=tmp_path) as hosted:
        monkeypatch.setenv("RAMPART_AGGREGATOR", hosted.url)
        token = hosted.settings.operator_token.get_secret_value()
        monkeypatch.setenv("RAMPART_OPERATOR_TOKEN", token)
        hosted.scripted(["ada", "bob"])
        hosted.run = hosted.operator.run("scripted-1")
        until(lambda: hosted.run.info().state in OVER)
        hosted.operator.submit(SECOND, name="second")
        hosted.run = hosted.operator.run("second-2")
        hosted.run.await_start()
        yield hosted


def finish(hosted: Hosted) -> None:
    """Lets clients do the second run, which one client declines."""

    connection = hosted.client("carl")

    async def decline() -> None:
        await connection.answer("second-2", False, "this client trains only cnn", None)
        await connection.close()

    hosted.soon(decline())
    hosted.scripted(["ada", "bob"])
    until(lambda: hosted.run.info().state in OVER)


def test_compare_shows_settings_and_results_of_both_runs(hosted: Hosted, rampart: Rampart) -> None:
    finish(hosted)
    shown = good(rampart("compare", "scripted-1", "second-2"))
    rows = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    assert ["state", "finished", "finished"] in rows
    assert ["clients", "2", "2"] in rows
    assert ["rounds", "3", "1"] in rows
    assert ["seed", "0", "2"] in rows
    content = json.loads(good(rampart("compare", "second-2", "scripted-1", "--json")))
    assert [one["run"] for one in content["runs"]] == ["second-2", "scripted-1"]
    assert [one["rounds"] for one in content["runs"]] == [1, 3]
    assert content["settings"]["seed"] == [2, 0]
    records = hosted.operator.run("scripted-1").rounds()
    sent = sum(sum(r.bytes_down.values()) + sum(r.bytes_up.values()) for r in records)
    assert content["runs"][1]["bytes"] == sent > 0


def test_running_run_can_be_compared_but_not_exported(
    hosted: Hosted, rampart: Rampart, tmp_path: Path
) -> None:
    shown = good(rampart("compare", "scripted-1", "second-2"))
    assert re.search(r"^state +finished +running$", shown, re.MULTILINE)
    assert re.search(r"^duration +.* -$", shown, re.MULTILINE)
    said = rampart("export", "second-2", str(tmp_path / "out"))
    assert (said.code, said.err) == (
        1,
        "error: run second-2 is running; export it after it has ended\n",
    )
    assert not (tmp_path / "out").exists()


def test_export_contains_records_models_and_evaluations(
    hosted: Hosted, rampart: Rampart, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    said = json.loads(good(rampart("export", "scripted-1", str(out), "--json")))
    run = hosted.operator.run("scripted-1")
    lines = (out / "rounds.jsonl").read_text().splitlines()
    assert [RoundRecord.model_validate_json(line) for line in lines] == run.rounds()
    assert any(RoundRecord.model_validate_json(line).mixing for line in lines)
    assert sorted(path.name for path in (out / "models").iterdir()) == [
        *("ada.safetensors", "bob.safetensors", "global.safetensors"),
    ]
    for name, digest in said["models"].items():
        assert (out / f"models/{name}.safetensors").read_bytes() == run.model(digest)
    assert (out / "models/global.safetensors").read_bytes() == run.model("global")
    assert json.loads((out / "run.json").read_text()) == run.info().model_dump(mode="json")
    assert json.loads((out / "evaluations.json").read_text()) == run.evaluations()
    assert (said["submission"], said["exported_by"]) == ("founding", "owner")
    assert good(rampart("report", str(out), "--out", str(tmp_path / "r.html")))
    assert run.info().experiment in (tmp_path / "r.html").read_text()
    again = rampart("export", "scripted-1", str(out))
    assert (again.code, "is not an empty folder" in again.err) == (1, True)


def test_reports_begin_with_the_first_round_whose_record_is_kept(
    hosted: Hosted, rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rampart_fl.services.console.connection.operated_run.PAGE", 1)
    hosted.run = hosted.operator.run("scripted-1")
    hosted.forget(0)
    good(rampart("export", "scripted-1", str(tmp_path / "out")))
    lines = (tmp_path / "out/rounds.jsonl").read_text().splitlines()
    assert [RoundRecord.model_validate_json(line).round for line in lines] == [1, 2]
    assert (tmp_path / "out/models/global.safetensors").is_file()
    content = json.loads(good(rampart("compare", "scripted-1", "second-2", "--json")))
    assert content["runs"][0]["rounds"] == 2


def test_client_history_covers_all_runs(hosted: Hosted, rampart: Rampart) -> None:
    finish(hosted)
    content = json.loads(good(rampart("clients", "ada", "--json")))
    assert [(one["run"], one["answer"]) for one in content] == [
        ("scripted-1", "accepted"),
        ("second-2", "accepted"),
    ]
    assert [one["decisions"] for one in content] == [{"accepted": 3}, {"accepted": 1}]
    for option, only in (("--last=1", "second-2"), ("--before=second-2", "scripted-1")):
        part = json.loads(good(rampart("clients", "ada", "--json", option)))
        assert part == [one for one in content if one["run"] == only]
    assert "there is no run third-3" in rampart("clients", "ada", "--before", "third-3").err
    declined = good(rampart("clients", "carl"))
    assert "scripted-1" not in declined
    assert re.search(r"second-2 .* declined ", declined)
    assert declined.splitlines()[-1] == "second-2: this client trains only cnn"
    assert "no client nobody" in rampart("clients", "nobody").err
    assert rampart("clients", "ada", "--run", "second-2").code == 2


def test_cancelled_runs_have_no_round_and_say_why_they_ended(
    hosted: Hosted, rampart: Rampart
) -> None:
    hosted.operator.submit(SECOND, name="third")
    hosted.operator.submit(SECOND, name="fourth")
    assert "fourth-4 queued: waits for the end of second-2 and 1 more run\n" in rampart("runs").out
    good(rampart("stop", "third-3", "--reason", "a mistake"))
    good(rampart("stop", "second-2"))  # This run has started, and waits for clients.
    until(lambda: hosted.run.info().state == "cancelled")
    listed = good(rampart("runs"))
    assert re.search(r"scripted-1 .* 3 of 3 ", listed)
    for run in ("second-2", "third-3"):
        assert re.search(rf"{run} +│ cancelled │ - ", listed)
    said = rampart("status", "--run", "third-3")
    assert (said.code, said.out) == (1, "")
    assert "run third-3 was cancelled before it started: a mistake" in said.err
    for before in ("3", "third-3"):
        older = json.loads(good(rampart("runs", "--json", "--before", before)))
        assert [one["run"] for one in older] == ["scripted-1", "second-2"]
    history = json.loads(good(rampart("clients", "ada", "--json", "--before", "2")))
    assert [one["run"] for one in history] == ["scripted-1"]
    assert "there is no run nope-3" in rampart("runs", "--before", "nope-3").err


@pytest.mark.parametrize("as_json", [False, True])
def test_followed_run_that_is_cancelled_fails_the_command(
    hosted: Hosted, rampart: Rampart, tmp_path: Path, as_json: bool
) -> None:
    hosted.run.steer("stop")
    until(lambda: hosted.run.info().state in OVER)
    (tmp_path / "third.toml").write_text(to_toml(SECOND.tables()))

    def cancel() -> None:
        until(lambda: any(one.state == "running" for one in hosted.operator.runs()))
        hosted.operator.run("third-3").steer("stop", "a mistake")

    operator = threading.Thread(target=cancel)
    operator.start()
    options = ("--name", "third", "--follow", *(["--json"] if as_json else []))
    said = rampart("run", str(tmp_path / "third.toml"), *options)
    operator.join()
    assert said.code == 1, said.err
    if as_json:
        info = json.loads(said.out)
        assert (info["state"], info["reason"]) == ("cancelled", "a mistake")
    else:
        assert said.out == "third-3 is cancelled: a mistake\n"


@pytest.mark.parametrize("flags", [["--json"], ["--events"], []])
def test_watch_fails_if_the_run_did_not_finish(
    hosted: Hosted, rampart: Rampart, flags: list[str]
) -> None:
    hosted.run.steer("stop", "a mistake")
    said = rampart("watch", "--run", "second-2", *flags)
    why = "error: run second-2 did not finish (cancelled): a mistake"
    assert (said.code, said.err.splitlines()[-1]) == (1, why)
    if flags:
        assert "cancelled" in said.out.splitlines()[-1], "the event `ended`"


def test_help_of_runs_says_that_the_default_is_a_list(rampart: Rampart) -> None:
    shown = " ".join(good(rampart("runs", "--help")).split())
    assert "if omitted, runs are listed" in shown
    assert "the current run" not in shown


def test_run_check_estimates_an_experiment_without_submitting_it(
    hosted: Hosted, rampart: Rampart
) -> None:
    arguments = ("run", "digits-benign", "--set", "data.clients=6", "--check")
    content = json.loads(good(rampart(*arguments, "--json")))
    chosen = json.loads(json.dumps(hosted.operator.check(SECOND).model_dump()))
    assert chosen == estimate(SECOND).model_dump()
    assert content["clients"] == 6
    assert re.search(
        r"^disk for blobs, at most +\d+\.\d MiB$", good(rampart(*arguments)), re.MULTILINE
    )
    said = rampart("run", "digits-benign", "--set", "model=lenet9", "--check")
    assert (said.code, "unknown model 'lenet9'" in said.err) == (1, True)
    more = ("--set", "clients.least=1", "--set", "server.test.dataset=digits")
    assert json.loads(good(rampart(*arguments, *more, "--json")))["clients"] == 6
    said = rampart(*arguments, "--set", "clients.last=1")
    assert (said.code, "no such key (did you mean 'least'?)" in said.err) == (1, True)
    assert len(hosted.operator.runs()) == 2


def test_path_of_a_starting_model_is_relative_to_the_working_directory(
    hosted: Hosted, rampart: Rampart, tmp_path: Path
) -> None:
    tables = {**SECOND.tables(), "model": {**SECOND.model, "start": {"file": "start.safetensors"}}}
    own = tmp_path / "own"
    own.mkdir()
    (own / "started.toml").write_text(to_toml(tables))
    with contextlib.chdir(own):
        said = rampart("run", "started.toml", "--check")
        assert (said.code, f"there is no file {own / 'start.safetensors'}" in said.err) == (1, True)
        (own / "start.safetensors").write_bytes(hosted.operator.run("scripted-1").model("global"))
        info = json.loads(good(rampart("run", "started.toml", "--json")))
    definition = hosted.operator.run(info["run"]).experiment()
    assert definition.start is not None and definition.start.file == str(own / "start.safetensors")


def test_export_counts_the_single_model_of_a_run(
    hosted: Hosted, rampart: Rampart, tmp_path: Path
) -> None:
    finish(hosted)
    said = good(rampart("export", "second-2", str(tmp_path / "out")))
    assert said == f"second-2: 1 model and all records are in {tmp_path / 'out'}\n"


def test_times_of_a_run_are_shown_in_utc(hosted: Hosted, rampart: Rampart) -> None:
    info = json.loads(good(rampart("runs", "scripted-1", "--json")))
    shown = good(rampart("runs", "scripted-1"))
    lines = dict(re.findall(r"^(\w+) +(.*)$", shown, re.MULTILINE))
    for name in ("submitted_at", "started_at", "ended_at"):
        assert isinstance(info[name], float)
        time = datetime.fromisoformat(lines[name])
        assert time.utcoffset() == timedelta(0)
        assert time.timestamp() == pytest.approx(info[name], abs=0.01)


def test_compare_refuses_a_single_run_and_unknown_runs(hosted: Hosted, rampart: Rampart) -> None:
    del hosted
    said = rampart("compare", "scripted-1")
    assert (said.code, "compare needs at least two run ids" in said.err) == (2, True)
    for unknown in ("nothing-9", "nothing"):
        why = f"error: there is no run {unknown}; the command `rampart runs` lists all runs\n"
        for command in (
            ("compare", "scripted-1", unknown),
            ("status", "--run", unknown),
            ("watch", "--run", unknown),
            ("pause", unknown),
            ("delete", unknown),
        ):
            said = rampart(*command)
            assert (said.code, said.err) == (1, why), command
