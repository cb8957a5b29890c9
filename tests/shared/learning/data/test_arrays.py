"""Arrays of files: shapes that match a sample's, arrays that stay bytes, and rejected arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.arrays import as_samples, labels, read


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ((4, 6, 5), (1, 6, 5)),
        ((4, 1, 6, 5), (1, 6, 5)),
        ((4, 6, 5, 3), (3, 6, 5)),
        ((4, 3, 6, 5), (3, 6, 5)),
        ((4, 3, 9), (3, 1, 9)),
        ((4, 7), (7,)),
        ((4, 3, 3, 3), (3, 3, 3)),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float64])
def test_matching_shapes_are_converted_to_the_samples_shape(
    given: tuple[int, ...], shape: tuple[int, ...], kind: Any
) -> None:
    array = np.arange(np.prod(given)).reshape(given).astype(kind)
    x = as_samples(array, shape, "x")
    assert x.shape == (4, *shape)
    assert x.dtype == (torch.uint8 if kind is np.uint8 else torch.float32)
    flat = array.transpose(0, 3, 1, 2) if given == (4, 6, 5, 3) else array
    assert x.flatten().tolist() == flat.flatten().tolist()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 5, 6)), r"shape \(4, 5, 6\), but the model takes \(n, \*\(1, 6, 5\)\)"),
        (np.zeros((0, 6, 5)), "shape"),
        (np.zeros(4), "shape"),
        (np.full((4, 6, 5), np.nan), "x is not finite"),
        (np.full((4, 6, 5), 1e300), "x is not finite"),
        (np.zeros((4, 6, 5), dtype=bool), "x holds bool, not numbers"),
        (np.zeros((4, 6, 5), dtype=complex), "not numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")  # 1e300 is too large for float32.
def test_arrays_of_invalid_shape_type_or_value_are_rejected(
    array: np.ndarray, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        as_samples(array, (1, 6, 5), "x")


def test_labels_must_be_integers_in_range_and_of_the_right_count() -> None:
    assert labels(np.array([0, 2], dtype=np.uint8), 2, 3, "y").tolist() == [0, 2]
    for wrong in ([0, 3], [-1, 0], [0, 1, 2], [0.0, 1.0]):
        with pytest.raises(ConfigurationError, match="y"):
            labels(np.array(wrong), 2, 3, "y")


def test_file_must_have_all_parts_and_may_have_groups(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, x_train=[1], y_train=[1], x_test=[1])
    with pytest.raises(ConfigurationError, match="lacks y_test"):
        read(path)
    np.savez(path, x_train=[1], y_train=[1], x_test=[1], y_test=[1], group_train=[5])
    assert read(path)["group_train"].tolist() == [5]


def test_damaged_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    arrays = {name: np.arange(300) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez_compressed(path, **arrays)
    whole = path.read_bytes()
    middle = len(whole) // 5
    for broken in (
        whole[:-30],
        whole[: len(whole) // 2],
        whole[:middle] + bytes(40) + whole[middle + 40 :],
        b"",
        b"PK",
    ):
        path.write_bytes(broken)
        with pytest.raises(ConfigurationError, match=r"cannot read .*own\.npz"):
            read(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ConfigurationError, match="a single array"):
        read(path)
    np.savez(path, **{**arrays, "x_train": np.array([{}], dtype=object)})
    with pytest.raises(ConfigurationError, match="cannot read"):
        read(path)
