"""Activities: WISDM's raw records cut into windows, and its features standardized."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.datasets.activity import GRAVITY, windows
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE
from rampart_fl.shared.learning.data.server_data import server_data


def records(user: int, activity: str, count: int, first: float = 0) -> str:
    return "".join(
        f"{user},{activity},{1000 + i},{first + i},-{first + i},0.5;\n" for i in range(count)
    )


def test_windows_stay_within_one_run_of_one_user() -> None:
    text = records(3, "Jogging", 450) + records(3, "Walking", 199) + records(4, "Walking", 200)
    x, y, users = windows(text)
    assert x.shape == (3, 3, 200)
    assert x.dtype == np.float32
    assert y.tolist() == [1, 1, 0]
    assert users.tolist() == [3, 3, 4]
    assert x[1, :, 5] * GRAVITY == pytest.approx([205, -205, 0.5])


def test_damaged_records_are_left_out() -> None:
    whole = "7,Sitting,5,1.5,-2,3.25E-2;"
    damaged = [
        "7,Sitting,5,1,2,;",  # no z
        "7,Sitting,0,0,0,0;",  # no time
        "7,Sitting,5,1,2",  # cut short
        "7,Flying,5,1,2,3;",  # no such activity
        ";;\n,,",
    ]
    text = "\n".join(damaged) + (whole + whole + "\n" + "7,Sitting,6,1.5,-2,0.0325,;") * 70
    x, y, users = windows(text)
    assert x.shape == (1, 3, 200)
    np.testing.assert_allclose((x[0] * GRAVITY).T, np.tile([1.5, -2, 0.0325], (200, 1)), rtol=1e-5)
    assert (y.tolist(), users.tolist()) == ([4], [7])


def test_raw_file_is_parsed_once_and_then_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = tmp_path / "own", tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setenv(CACHE, str(kept))
    member = datasets.build("wisdm_raw")
    with pytest.raises(ConfigurationError, match=r"WISDM_ar_v1\.1_raw\.txt"):
        member.load()
    raw = folder / "WISDM_ar_v1.1_raw.txt"
    raw.write_text(records(1, "Standing", 1600) + records(2, "Upstairs", 800))
    assert member.source().place == str(raw)
    samples = member.load()
    raw.unlink()
    again = member.load()
    assert samples.x.shape == (12, 3, 1, 200)
    assert samples.x.equal(again.x)
    assert samples.groups is not None
    assert samples.groups.bincount().tolist() == [0, 8, 4]
    assert samples.y.bincount().tolist() == [0, 0, 4, 0, 0, 8]
    assert [path.name for path in kept.iterdir()] == ["wisdm_raw.npz"]


def test_raw_file_without_a_full_window_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "WISDM_ar_v1.1_raw.txt").write_text(records(1, "Standing", 100))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv(CACHE, str(tmp_path / "kept"))
    with pytest.raises(ConfigurationError, match="no window of 200 records"):
        datasets.build("wisdm_raw").load()


def test_features_are_standardized_by_training_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = np.random.default_rng(1)
    x = draws.normal(5, 3, (50, 43)).astype(np.float32)
    x[:, 7] = 2
    y = np.arange(50, dtype=np.uint8) % 6
    np.savez(tmp_path / "wisdm.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    table = Data(dataset="wisdm", clients=3, reserved=8, test_fraction=0.4)
    clients = [client_data(table, slot, seed=1) for slot in range(3)]
    train = torch.cat([own.x_train for own in clients])
    assert train.mean(0).abs().max() < 1e-5
    assert train.std(0)[7] == 0  # a feature that never changes
    assert ((train.std(0) - 1).abs() < 1e-4).sum() == 42
    test = torch.cat([own.x_test for own in clients])
    held = server_data("wisdm", 8, table, seed=1, role="root").x
    for unseen in (test, held):
        assert unseen.mean(0).abs().max() > 0.05
    # The same mean and deviation apply to all samples: one linear map restores the file's values.
    raw = np.sort(x[:, 0])
    result = np.sort(torch.cat([train, test, held])[:, 0].numpy())
    slope = (raw[-1] - raw[0]) / (result[-1] - result[0])
    np.testing.assert_allclose(raw, raw[0] + slope * (result - result[0]), atol=1e-4)
