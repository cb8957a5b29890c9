"""Arguments that a command cannot use are refused before the command does anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rampart = Callable[..., Any]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("data show digits-benign --png heat.foo", "--png heat.foo: the name of a PNG file ends"),
        ("run digits-benign --check --set =3", "--set =3: write it as PATH=VALUE"),
        ("report run --out .", "--out . is a folder; give the name of an HTML file"),
    ],
)
def test_invalid_arguments_are_refused(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = rampart(*command.split())
    assert (said.code, said.out) == (2, "")
    assert reason in said.err
    assert not list(tmp_path.iterdir())
