"""Data files: the search order, and the error if a file is missing or invalid."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.datasets import Dataset, datasets
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE, FileDataset, cache


def write(folder: Path, value: int = 255, **arrays: Any) -> None:
    usual: dict[str, Any] = {
        "x_train": np.full((3, 16, 16), value, dtype=np.uint8),
        "y_train": np.array([0, 1, 9], dtype=np.uint8),
        "x_test": np.zeros((2, 16, 16), dtype=np.uint8),
        "y_test": np.array([1, 2], dtype=np.uint8),
    }
    folder.mkdir(parents=True, exist_ok=True)
    shown = {name: array for name, array in {**usual, **arrays}.items() if array is not None}
    np.savez(folder / "usps.npz", **shown)


@pytest.fixture
def usps() -> Dataset:
    return datasets.build("usps")


def test_own_folder_takes_precedence_over_the_cache(usps: Dataset, folders: Any) -> None:
    assert usps.source().kind == "OpenML"
    assert not usps.source().present
    write(folders.cache, value=51)
    assert (usps.source().kind, usps.source().present) == ("cache", True)
    assert float(usps.load().take().max()) == pytest.approx(0.2)
    write(folders.own)
    assert usps.source().kind == VARIABLE
    assert usps.source().place == str(folders.own / "usps.npz")
    assert float(usps.load().take().max()) == 1


def test_cache_is_in_the_home_directory_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache() == tmp_path / ".cache" / "rampart"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache() == tmp_path / "caches" / "rampart"
    monkeypatch.setenv(CACHE, "~/elsewhere")
    assert cache() == tmp_path / "elsewhere"


def test_own_folder_is_read_without_a_home_directory(
    usps: Dataset, folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    for name in (CACHE, "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    write(folders.own)
    assert len(usps.load().y) == 5
    assert cache() == Path(tempfile.gettempdir()) / "rampart"


def test_unwritable_cache_is_reported_and_gets_no_partial_file(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders.own / "file").touch()
    monkeypatch.setenv(CACHE, str(folders.own / "file" / "cache"))
    member = datasets.build("usps")
    assert isinstance(member, FileDataset)
    with pytest.raises(ConfigurationError, match=f"cannot write .*set {CACHE}"):
        member._keep({"y_train": np.zeros(1)})
    assert [path.name for path in folders.own.iterdir()] == ["file"]


def test_missing_files_are_reported_with_instructions(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    for name in datasets.names():
        member = datasets.build(name)
        if not isinstance(member, FileDataset):
            assert member.source().present
            continue
        with pytest.raises(ConfigurationError) as caught:
            member.load()
        message = str(caught.value)
        assert f"put {name}.npz" in message
        assert f"set {VARIABLE}" in message
        assert ("no route to data set" in message) == bool(member.openml)
        assert member.source().kind == ("OpenML" if member.openml else "you")
    assert not folders.cache.exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"y_train": np.array([0, 1])}, "not 3 integers"),
        ({"y_train": np.array([0, 1, 10])}, r"outside 0\.\.9"),
        ({"x_train": np.zeros((3, 8, 9))}, "shape"),
        ({"x_test": np.full((2, 16, 16), np.inf)}, "not finite"),
        ({"x_test": np.zeros((0, 16, 16)), "y_test": np.zeros(0, dtype=int)}, "shape"),
        ({"group_train": np.zeros(2, dtype=int)}, "group_train holds int64 of shape"),
        ({"group_test": np.zeros(2)}, "group_test holds float64"),
        ({"x_train": np.array([{}, {}, {}], dtype=object)}, "cannot read"),
    ],
)
def test_invalid_arrays_are_rejected_with_the_reason(
    arrays: dict[str, Any], message: str, usps: Dataset, folders: Any
) -> None:
    write(folders.own, **arrays)
    with pytest.raises(ConfigurationError, match=message):
        usps.load()


def test_file_that_is_not_an_archive_is_rejected(usps: Dataset, folders: Any) -> None:
    (folders.own / "usps.npz").write_text("no archive")
    with pytest.raises(ConfigurationError, match="cannot read"):
        usps.load()


def test_groups_are_ignored_unless_both_parts_have_them(usps: Dataset, folders: Any) -> None:
    write(folders.own, group_train=np.array([4, 5, 6], dtype=np.uint8))
    assert usps.load().groups is None


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.float32])
def test_bytes_integers_and_floats_give_the_same_pixels(
    kind: type, usps: Dataset, folders: Any
) -> None:
    draws = np.random.default_rng(3)
    pixels = draws.integers(0, 256, (5, 16, 16))
    x = (pixels / 255).astype(kind) if kind is np.float32 else pixels.astype(kind)
    write(folders.own, x_train=x[:3], x_test=x[3:])
    samples = usps.load()
    assert samples.take().dtype == torch.float32
    assert samples.take(torch.tensor([4, 0])).numpy()[:, 0] == pytest.approx(pixels[[4, 0]] / 255)
    # Bytes stay bytes: a large data set takes a quarter of the memory.
    assert (samples.x.dtype == torch.uint8) == (kind is np.uint8)


def test_parts_of_different_dtypes_are_combined(usps: Dataset, folders: Any) -> None:
    x = np.full((2, 16, 16), 51, dtype=np.uint8)
    write(folders.own, x_train=np.full((3, 16, 16), 0.2, dtype=np.float32), x_test=x)
    assert usps.load().take().unique().tolist() == pytest.approx([0.2])


@pytest.mark.parametrize("name", ["usps", "hapt"])
def test_nonexistent_data_folder_is_named_in_the_error(name: str, folders: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        datasets.build(name).fetch()
    assert "not a folder" not in str(caught.value)
    folders.own.rmdir()
    with pytest.raises(ConfigurationError, match=f"it names {folders.own}, which is not a folder"):
        datasets.build(name).fetch()
