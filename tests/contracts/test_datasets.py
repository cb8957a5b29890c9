"""The contract of all data sets: shape and classes are declared, and numbers are in range."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.datasets import Dataset, datasets, openml
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE, FileDataset
from rampart_fl.shared.learning.data.datasets.openml import RowsArrived

FROM_FILES = [name for name in datasets.names() if issubclass(datasets.get(name), FileDataset)]
TEXTS = {"ag_news"}


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(data_id: int, arrived: RowsArrived) -> None:
        raise OSError(f"no route to data set {data_id}")

    monkeypatch.setattr(openml, "table", away)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))


def write(folder: Path, name: str) -> None:
    """A small file in the data set's own format: channels last, integers, or texts."""
    shape, draws = datasets.build(name).shape, np.random.default_rng(3)
    shape = (*shape[1:], shape[0]) if len(shape) == 3 else shape
    arrays = {}
    for part, n in (("train", 7), ("test", 3)):
        x = draws.integers(0, 2, (n, *shape), dtype=np.uint8)
        arrays[f"x_{part}"] = np.array(["some words"] * n) if name in TEXTS else x
        arrays[f"y_{part}"] = np.arange(n, dtype=np.uint8) % 2
        arrays[f"group_{part}"] = np.arange(n, dtype=np.uint8) % 3
    np.savez(folder / f"{name}.npz", **arrays)


@pytest.fixture(params=datasets.names())
def member(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Dataset:
    """Every data set, with a small file if the data set is read from a file."""
    if request.param in FROM_FILES:
        write(tmp_path, request.param)
        monkeypatch.setenv(VARIABLE, str(tmp_path))
    return datasets.build(request.param)


def test_samples_have_the_declared_shape_type_and_classes(member: Dataset) -> None:
    samples = member.load()
    assert samples.x.shape == (len(samples.y), *member.shape)
    assert samples.take().dtype == torch.float32
    assert samples.take().is_contiguous()
    assert samples.y.dtype == torch.long
    assert samples.classes == member.classes
    assert int(samples.y.min()) >= 0
    assert int(samples.y.max()) < member.classes
    assert samples.take().isfinite().all()
    if member.name in FROM_FILES:
        assert samples.groups is not None
        assert samples.groups.tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 1, 2]


@pytest.mark.parametrize("name", FROM_FILES)
def test_missing_file_error_says_how_to_provide_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigurationError, match=f"set {VARIABLE}"):
        datasets.build(name).load()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ConfigurationError, match=f"{name}.npz"):
        datasets.build(name).load()


def test_repeated_loads_and_draws_with_equal_seeds_are_equal(member: Dataset) -> None:
    assert member.source().present
    one, again = member.load(), member.load()
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.y, again.y)
    drawn, redrawn, other = (member.draw(seed) for seed in (1, 1, 2))
    if drawn is not None:
        assert redrawn is not None
        assert other is not None
        assert torch.equal(drawn.x, redrawn.x)
        assert not torch.equal(drawn.x, other.x)


def test_taken_samples_are_a_copy(member: Dataset) -> None:
    samples = member.load()
    before, picks = samples.x.clone(), torch.tensor([3, 0])
    taken = samples.take(picks)
    assert torch.equal(taken, samples.take()[picks])
    taken.fill_(7)
    assert torch.equal(samples.x, before)


@pytest.mark.parametrize("name", FROM_FILES)
def test_file_data_sets_name_their_licence_and_paper(name: str) -> None:
    member = datasets.build(name)
    assert member.licence
    assert member.paper


@pytest.mark.parametrize("name", FROM_FILES)
@pytest.mark.slow
def test_real_file_matches_its_declaration(name: str) -> None:
    member = datasets.build(name)
    source = member.source()
    if source.kind != VARIABLE:
        pytest.skip(f"{VARIABLE} has no {name}")
    samples = member.load()
    assert samples.x.shape == (len(samples.y), *member.shape)
    assert len(samples.y) <= (member.total or len(samples.y))
    assert int(samples.y.max()) < member.classes
    assert len(samples.y.unique()) >= min(member.classes, 2)
    if samples.groups is not None:
        assert samples.groups.shape == samples.y.shape
    if len(member.shape) == 3 and member.shape[1] > 1:
        some = samples.take(slice(0, 1000))
        assert 0.0 <= float(some.min()) < float(some.max()) <= 1.0
        # Neighbouring pixels are similar only if the file's axes were read in the right order.
        assert float((some[..., 1:] - some[..., :-1]).abs().mean()) < 0.2
