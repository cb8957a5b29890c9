"""Objects by import path: which objects are found, and the error for each mistake."""

import sys
from pathlib import Path

import pytest

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.importpath import load_callable


def test_nested_names_are_resolved() -> None:
    assert load_callable("pathlib:Path.cwd", "it")() is not None


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("pathlib.Path", "must be named as MODULE:NAME"),
        (":Path", "must be named as MODULE:NAME"),
        ("pathlib:", "must be named as MODULE:NAME"),
        ("no_such_module_here:x", "no module 'no_such_module_here'"),
        ("pathlib:Pahth", "pathlib has no 'Pahth'"),
        ("math:pi", "is float, not callable"),
    ],
)
def test_invalid_import_paths_are_rejected_with_the_reason(path: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_callable(path, "a client")


def test_working_directory_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_here.py").write_text("def it():\n    return 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_callable("found_here:it", "it")() == 5
    assert sys.path[-1] == str(tmp_path)
