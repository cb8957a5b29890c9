"""Options that a command would ignore are refused before the command does anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rampart = Callable[..., Any]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("simulate digits-benign --checkpoint 10", "a run saves no checkpoints; omit --checkpoint"),
        (
            "simulate mean-estimation-sweep --out new --checkpoint 10",
            "a sweep keeps finished runs, not checkpoints; omit --checkpoint",
        ),
        ("certify digits-flcert --error 0.001", "every certificate is exact; omit --error"),
        (
            "reproduce fedcap-table-1 --list --jobs 1 --scale reduced",
            "--list only lists the tables; omit NAME, --scale, --jobs",
        ),
        ("run digits-benign --check --follow", "--check submits nothing; omit --follow"),
        (
            "run digits-benign --check --name a --submission b --wait 1 --reason c",
            "--check submits nothing; omit --name, --submission, --wait, --reason",
        ),
        ("runs digits-1 --last 100", "an id shows only this run; omit --last"),
        ("rounds 3 --last 20", "a number shows only this round; omit --last"),
        (
            "tokens --revoke secret --label site=eu --count 1",
            "--revoke makes no tokens; omit --count, --label",
        ),
        ("track . board --to tensorboard --url http://x", "without an aggregator; omit --url"),
        ("track . board --to tensorboard --token x", "without an aggregator; omit --token"),
        ("clients --last 20", "only a client's history covers several runs; omit --last"),
        ("clients ada --everywhere", "a client's history covers all runs; omit --everywhere"),
        ("clients --everywhere --run a-1", "lists the clients of all runs; omit --run"),
        ("evict ada --everywhere --run a-1", "--everywhere applies to all runs; omit --run"),
        ("reinstate ada --everywhere --run a-1", "--everywhere applies to all runs; omit --run"),
    ],
)
def test_options_without_effect_are_refused(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, reason: str
) -> None:
    """Several options have their default values: what counts is that the command line has them."""
    monkeypatch.chdir(tmp_path)
    said = rampart(*command.split())
    assert (said.code, said.out) == (2, "")
    assert reason in said.err
    assert not list(tmp_path.iterdir())


def test_settings_from_the_environment_are_not_refused(
    rampart: Rampart, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAMPART_AGGREGATOR", "http://aggregator.example")
    monkeypatch.setenv("RAMPART_OPERATOR_TOKEN", "token")
    monkeypatch.setenv("RAMPART_DEVICE", "cpu")
    assert rampart("reproduce", "--list").code == 0
    said = rampart("track", str(tmp_path), "board", "--to", "tensorboard")
    assert (said.code, "holds no run" in said.err) == (1, True)
