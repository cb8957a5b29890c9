"""Ranks per coordinate, checked against numpy's sort on every path and memory layout."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rampart_fl.shared.robust import Rows, aggregate, linalg, shards
from rampart_fl.shared.robust.linalg import native, ordering, views
from rampart_fl.shared.robust.shards import Part

pytestmark = pytest.mark.usefixtures("kernels")


def block(n: int, dim: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    draws = torch.Generator().manual_seed(n)
    return torch.randn(n, dim, generator=draws, dtype=torch.float64).to(dtype)


def near_median(sorted_ND: np.ndarray, keep: int) -> np.ndarray:
    n = len(sorted_ND)
    middle_D = (sorted_ND[(n - 1) // 2] + sorted_ND[n // 2]) / 2
    order_ND = np.argsort(np.abs(sorted_ND - middle_D), axis=0, kind="stable")
    return np.take_along_axis(sorted_ND, order_ND[:keep], axis=0).mean(axis=0)


def agree_with_sorting(block_ND: torch.Tensor) -> None:
    n, dtype = len(block_ND), block_ND.dtype
    rows, b, keep = Rows.of(block_ND), (n - 1) // 3, n - n // 4
    sorted_ND = np.sort(block_ND.double().numpy(), axis=0)
    close = (
        {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-14}
    )
    median_D = (sorted_ND[(n - 1) // 2] + sorted_ND[n // 2]) / 2
    np.testing.assert_allclose(linalg.median(rows).numpy(), median_D, **close)
    trimmed_D = sorted_ND[b : n - b].mean(axis=0)
    np.testing.assert_allclose(linalg.trimmed_mean(rows, b).numpy(), trimmed_D, **close)
    around_D = near_median(sorted_ND, keep)
    np.testing.assert_allclose(linalg.mean_around_median(rows, keep).numpy(), around_D, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 63, 257, 3000])
def test_median_trimmed_mean_and_mean_around_median_agree_with_sorting(
    dim: int, dtype: torch.dtype
) -> None:
    for n in (1, 2, 3, 7, 20, 40, 41, 80, 81, 130):
        agree_with_sorting(block(n, dim, dtype))


@pytest.mark.parametrize("n", [6, 50])
def test_median_does_not_depend_on_memory_layout(n: int) -> None:
    wide_ND = block(n, 500)
    plain_D = linalg.median(Rows.of(wide_ND))
    assert torch.equal(linalg.median(Rows.of(wide_ND.T.contiguous().T)), plain_D)
    assert torch.equal(linalg.median(Rows.of(wide_ND.repeat(1, 2)[:, :500])), plain_D)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
    ids = [f"{i:03d}" for i in order]
    assert torch.equal(linalg.median(Rows.of(wide_ND[order], ids=ids)), plain_D)
    half = linalg.median(Rows.of(wide_ND).columns(slice(100, 300)))
    assert torch.equal(half, plain_D[100:300])


@pytest.mark.parametrize("n", [6, 50])
@pytest.mark.parametrize("dim", [1, 500])
def test_input_rows_are_never_modified(n: int, dim: int) -> None:
    for block_ND in (block(n, dim), block(n, dim).T.contiguous().T):
        before_ND = block_ND.clone()
        linalg.median(Rows.of(block_ND))
        linalg.trimmed_mean(Rows.of(block_ND), 1)
        linalg.mean_around_median(Rows.of(block_ND), n - 1)
        assert torch.equal(block_ND, before_ND)


@pytest.mark.parametrize("n", [5, 48])
def test_result_does_not_depend_on_chunk_size_or_thread_count(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows.of(block(n, 20_000)).mixed(torch.eye(n, dtype=torch.float64))
    results = []
    for threads, size in ((1, 1 << 24), (2, 1 << 16), (3, 1 << 18)):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        monkeypatch.setattr(views, "MIXED_BYTES", size)
        monkeypatch.setattr(ordering, "BLOCK", size // n)
        results.append(linalg.mean_around_median(rows, n - 2))
    assert all(torch.equal(result, results[0]) for result in results)


def test_sorting_agrees_with_networks_beyond_the_wire_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block_ND = block(60, 100)
    by_network_D = linalg.trimmed_mean(Rows.of(block_ND), 7)
    monkeypatch.setattr(ordering, "MOST_WIRES", 50)
    torch.testing.assert_close(linalg.trimmed_mean(Rows.of(block_ND), 7), by_network_D)


def test_median_of_values_near_the_float32_limit_does_not_overflow() -> None:
    rows = Rows.of(torch.tensor([[3e38, -3e38], [3e38, -3e38], [1.0, 2.0]]))
    assert linalg.median(rows).tolist() == pytest.approx([3e38, -3e38])


def test_sparse_mixing_shares_a_base_row_and_excludes_a_huge_row_from_it() -> None:
    n, keep = 9, 7
    block_ND = block(n, 3000)
    block_ND[8] = 1e30
    mix_NN = torch.zeros(n, n, dtype=torch.float64)
    for row in range(n):
        # Every row averages most other rows; only one includes the huge row.
        mix_NN[row, [(row + i) % 8 for i in range(keep)]] = 1 / keep
    mix_NN[8] = 0
    mix_NN[8, 2:] = 1 / keep
    rows = Rows.of(block_ND).mixed(mix_NN)
    starts, froms, by = ordering.sparse_mixing(mix_NN)
    base = set(froms[: starts[1]].tolist())
    assert base == set(range(8)) and len(by) < int((mix_NN != 0).sum())
    found_D = linalg.trimmed_mean(rows, 1)
    exact_D = (mix_NN @ block_ND.double()).sort(dim=0).values[1:8].mean(dim=0)
    torch.testing.assert_close(found_D.double(), exact_D, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_sparse_mixing_reproduces_the_mixing_matrix(n: int) -> None:
    draws = torch.Generator().manual_seed(n)
    for mix_MK in (
        torch.rand(n, n + 2, generator=draws, dtype=torch.float64),
        torch.eye(n, dtype=torch.float64),
        torch.full((n, n), 1 / n, dtype=torch.float64),
        torch.zeros(n, n, dtype=torch.float64),
    ):
        starts, froms, by = ordering.sparse_mixing(mix_MK)
        pool_SK = torch.cat([torch.eye(mix_MK.shape[1]), torch.zeros(1, mix_MK.shape[1])]).double()
        made = []
        for i in range(n + 1):
            terms = slice(int(starts[i]), int(starts[i + 1]))
            made.append(by[terms] @ pool_SK[froms[terms].long()])
            pool_SK[-1] = made[0]
        torch.testing.assert_close(torch.stack(made[1:]), mix_MK)


@pytest.mark.parametrize("n", [4, 5, 40, 300])
def test_means_of_values_near_the_float32_limit_do_not_overflow(n: int) -> None:
    rows = Rows.of(torch.full((n, 3), 3e38))
    for result_D in (
        linalg.median(rows),
        linalg.trimmed_mean(rows, n // 4),
        linalg.mean_around_median(rows, n - 1),
    ):
        assert result_D.tolist() == pytest.approx([3e38] * 3)


def test_part_of_the_columns_has_the_bits_of_all_columns() -> None:
    """Each rank holds a part of the columns, and sums may depend on where a chunk ends."""
    dim = 140_001
    block_ND = block(8, dim)
    for first in (0, shards.GRAIN):
        part = Part(dim, first, dim)
        own = replace(Rows.of(block_ND[:, first:]), part=part)
        for compute in (
            lambda rows: linalg.trimmed_mean(rows, 1),
            lambda rows: linalg.mean_around_median(rows, 5),
            linalg.median,
        ):
            assert torch.equal(compute(own), compute(Rows.of(block_ND))[first:])


@pytest.mark.parametrize("rule", ["bulyan", "mean_around_median"])
def test_equally_near_values_of_mixed_rows_give_the_same_mean_in_every_precision(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = ["nnm", rule]
    for seed in range(74, 190, 5):
        block_ND = torch.randn(20, 300, generator=torch.Generator().manual_seed(seed))
        exact_D = aggregate(block_ND.double(), stages, f=3).float()
        for kernels in ("auto", "torch"):
            monkeypatch.setenv("RAMPART_KERNELS", kernels)
            torch.testing.assert_close(aggregate(block_ND, stages, f=3), exact_D)
