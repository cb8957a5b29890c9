"""The file `console.json`: writes are atomic, and a damaged file does not disable the console."""

import os
from pathlib import Path

import pytest

from rampart_fl.services.console.connection.saved_federation import (
    NAME,
    SavedFederation,
    load_all,
    save,
)

ONE = SavedFederation("http://127.0.0.1:1", "a" * 20)
TWO = SavedFederation("http://127.0.0.1:2", "b" * 20)


def folder_of(parent: Path, name: str, federation: SavedFederation, age: int) -> Path:
    """A folder in which this federation was saved `age` seconds ago."""
    folder = parent / name
    folder.mkdir()
    save(folder, federation)
    os.utime(folder / NAME, (10_000 - age, 10_000 - age))
    return folder


def test_saved_federations_are_loaded_newest_first(tmp_path: Path) -> None:
    old, new = folder_of(tmp_path, "new", ONE, age=9), folder_of(tmp_path, "old", TWO, age=1)
    assert load_all([old, new]) == [TWO, ONE]
    assert load_all([new, tmp_path / "none"]) == [TWO]


def test_only_the_owner_can_read_a_replaced_file(tmp_path: Path) -> None:
    (tmp_path / NAME).touch(0o644)
    save(tmp_path, ONE)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert load_all([tmp_path]) == [ONE]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_file_is_replaced_and_never_truncated(tmp_path: Path) -> None:
    save(tmp_path, ONE)
    with (tmp_path / NAME).open() as earlier:
        save(tmp_path, TWO)
        assert ONE.token in earlier.read(), "the earlier file is whole"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"[]", b'{"url": "http://x"', b"null", b"\xff"),
        b'{"url": "http://127.0.0.1:99999", "token": "t"}',
        b'{"url": "http://[::1", "token": "t"}',
    ],
)
def test_damaged_file_is_skipped_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    damaged, good = tmp_path / "damaged", folder_of(tmp_path, "good", ONE, age=0)
    damaged.mkdir()
    (damaged / NAME).write_bytes(content)
    assert load_all([damaged, good]) == [ONE]
    why = "it does not contain a URL and a token"
    assert capsys.readouterr().err == f"warning: ignored {damaged / NAME}: {why}\n"


def test_unreadable_file_is_skipped_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).mkdir()
    assert load_all([tmp_path]) == []
    assert capsys.readouterr().err == f"warning: ignored {tmp_path / NAME}: Is a directory\n"
