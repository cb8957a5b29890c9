"""Reports of a client: which updates count as diverged."""

import numpy as np
import pytest

from rampart_fl.shared.protocol.reports import sendable
from tests.shared.protocol.test_wire import NANS

DTYPES = ["F32", "F16", "BF16"]
INFINITIES = np.array([0x7F800000, 0xFF800000], dtype=np.uint32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("error")
def test_an_update_with_any_nan_or_infinity_has_diverged(dtype: str) -> None:
    for bits in (*NANS, *INFINITIES):
        update_D = np.array([0x3F800000, bits], dtype=np.uint32).view(np.float32)
        sent_D, diverged = sendable(update_D, dtype)
        assert diverged, hex(bits)
        assert sent_D.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_finite_update_is_sent_unchanged(dtype: str) -> None:
    update_D = np.array([1.5, -2.0, 0.1], dtype=np.float32)
    sent_D, diverged = sendable(update_D, dtype)
    assert not diverged
    assert sent_D is update_D


@pytest.mark.parametrize(("dtype", "largest"), [("F16", 65504.0), ("BF16", 3.3895314e38)])
def test_an_update_that_overflows_in_the_format_of_uploads_has_diverged(
    dtype: str, largest: float
) -> None:
    for value, expected in ((largest, False), (-largest, False), (largest * 1.003, True)):
        update_D = np.array([value], dtype=np.float32)
        assert sendable(update_D, dtype)[1] == expected, value
