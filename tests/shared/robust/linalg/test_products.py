"""Sums over coordinates, checked against float64 algebra."""

import struct

import pytest
import torch

from rampart_fl.shared.robust import Rows, linalg
from rampart_fl.shared.robust.linalg import native, products, views
from rampart_fl.shared.robust.shards import Part

pytestmark = pytest.mark.usefixtures("kernels")


def block(n: int, dim: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    draws = torch.Generator().manual_seed(n + dim)
    return torch.randn(n, dim, generator=draws, dtype=torch.float64).to(dtype)


def test_passes_over_no_rows_return_empty_results() -> None:
    """This happens if no upload of a round is finite."""
    rows = Rows.of(block(3, 5)).keep(torch.tensor([], dtype=torch.long))
    assert linalg.norms(rows).shape == (0,)
    assert linalg.dots(rows, torch.ones(5)).shape == (0,)
    assert linalg.gram(rows).shape == (0, 0)
    assert products.finite_and_squared_norms(torch.zeros(0, 5))[0] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "dim"), [(1, 1), (3, 17), (5, 1024), (9, 1025), (21, 40_000)])
def test_passes_agree_with_dense_float64_algebra(n: int, dim: int, dtype: torch.dtype) -> None:
    block_ND = block(n, dim, dtype)
    wide_ND, rows, centre_D = block_ND.double(), Rows.of(block_ND), block(1, dim)[0]
    weights_M = torch.linspace(-1, 1, n, dtype=torch.float64)
    close = {"rtol": 1e-6, "atol": 1e-6 * dim}
    combined_D = linalg.combine(rows, weights_M)
    assert combined_D.dtype == dtype
    torch.testing.assert_close(combined_D.double(), weights_M @ wide_ND, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(linalg.norms(rows), wide_ND.norm(dim=1), rtol=1e-6, atol=0)
    offsets_ND = wide_ND - centre_D
    torch.testing.assert_close(
        linalg.norms(rows, centre_D), offsets_ND.norm(dim=1), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(
        linalg.dots(rows, centre_D), wide_ND @ centre_D.double(), rtol=1e-6, atol=1e-3
    )
    torch.testing.assert_close(linalg.gram(rows), wide_ND @ wide_ND.T, **close)
    about_ND = wide_ND - wide_ND[n - 1]
    torch.testing.assert_close(linalg.gram(rows, n - 1), about_ND @ about_ND.T, **close)


@pytest.mark.parametrize("own", [False, True])
def test_results_do_not_depend_on_thread_count(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, results = Rows.of(block(9, 70_000)), []
    if own:
        monkeypatch.setattr(native, "_parallel", lambda: None)
    for threads in (1, 2, 5):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        weights_M = torch.arange(9.0)
        results.append((linalg.gram(rows), linalg.norms(rows), linalg.combine(rows, weights_M)))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_passes_over_chunked_mixed_rows_agree_with_dense_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "MIXED_BYTES", 1 << 16)
    block_ND, by_LM = block(6, 5000, torch.float64), block(4, 6, torch.float64)
    mixed, written = Rows.of(block_ND).mixed(by_LM, list("abcd")), Rows.of(by_LM @ block_ND)
    torch.testing.assert_close(linalg.gram(mixed), linalg.gram(written))
    torch.testing.assert_close(linalg.gram(mixed, 2), linalg.gram(written, 2))
    torch.testing.assert_close(linalg.norms(mixed), linalg.norms(written))
    weights_M = torch.arange(4.0)
    torch.testing.assert_close(linalg.combine(mixed, weights_M), linalg.combine(written, weights_M))


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e15, 1e25, 1e35])
def test_gram_is_accurate_if_products_exceed_the_float32_range(scale: float) -> None:
    block_ND = block(4, 300) * scale
    wide_ND = block_ND.double()
    torch.testing.assert_close(
        linalg.gram(Rows.of(block_ND)), wide_ND @ wide_ND.T, rtol=1e-5, atol=1e-5 * scale**2
    )


def test_rows_with_zero_weight_do_not_affect_the_combination() -> None:
    block_ND = torch.tensor([[1.0, 2.0], [3e38, -3e38], [5.0, 6.0]])
    weights_M = torch.tensor([0.5, 0.0, 0.5])
    assert linalg.combine(Rows.of(block_ND), weights_M).tolist() == [3, 4]
    assert linalg.combine(Rows.of(block_ND), torch.zeros(3)).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_non_finite_rows_are_detected(dtype: torch.dtype) -> None:
    block_ND = block(7, 2100, dtype)
    for row, at, value in ((1, 0, torch.nan), (3, 1024, torch.inf), (6, 2099, -torch.inf)):
        block_ND[row, at] = value
    block_ND[2] = torch.finfo(dtype).max
    expected = [True, False, True, False, True, True, False]
    assert products.finite_and_squared_norms(block_ND)[0] == expected
    assert products.finite_and_squared_norms(block_ND.T.contiguous().T)[0] == expected
    assert products.finite_and_squared_norms(block_ND[:, :0])[0] == [True] * 7


def norm_of_ranks(vector_D: torch.Tensor) -> float:
    """The norm as ranks sum it: `Part.total` of the blocks' squares."""
    part, numbers_D = Part(len(vector_D), 0, len(vector_D)), vector_D.double().numpy()
    blocks = (
        (start, torch.tensor(piece @ piece))
        for begin, end in part.own()
        for start in range(begin, end, products.BLOCK)
        for piece in [numbers_D[start : min(start + products.BLOCK, end)]]
    )
    return float(part.total(blocks, ()).sqrt())


@pytest.mark.parametrize("dim", [1, 9_985, 70_001, 300_000])
@pytest.mark.parametrize("last", [1.0, 3e38, float("inf"), float("nan")])
def test_norm_of_one_process_has_the_bits_of_the_sum_over_ranks(dim: int, last: float) -> None:
    vector_D = block(1, dim)[0]
    vector_D[-1] = last
    assert struct.pack("d", linalg.norm(vector_D)) == struct.pack("d", norm_of_ranks(vector_D))


def test_norms_of_many_short_vectors_have_the_bits_of_the_sum_over_ranks() -> None:
    # About one in eighty roots of `math.sqrt` differs from torch's root in the last bit.
    for vector_D in block(1_000, 3):
        assert linalg.norm(vector_D) == norm_of_ranks(vector_D)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_norm_has_the_bits_of_ranks_in_every_number_format(dtype: torch.dtype) -> None:
    vector_D = block(1, 70_001)[0].to(dtype)
    assert linalg.norm(vector_D) == norm_of_ranks(vector_D)
