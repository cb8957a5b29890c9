"""Distances, checked against float64 differences, wherever the rows lie."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Rows, linalg

pytestmark = pytest.mark.usefixtures("kernels")


def exact(block_ND: Tensor) -> Tensor:
    """Squared distances from differences, in float64."""
    wide_ND = block_ND.double()
    return torch.stack([(wide_ND - row_D).square().sum(dim=1) for row_D in wide_ND])


def block(n: int, dim: int, seed: int = 0) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("deviation", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("n", [2, 8, 30])
def test_distances_of_close_rows_far_from_the_origin_are_accurate(n: int, deviation: float) -> None:
    block_ND = block(1, 4000) * 3 + block(n, 4000, 1) * deviation
    found_NN = linalg.squared_distances(Rows.of(block_ND))
    torch.testing.assert_close(found_NN, exact(block_ND), rtol=1e-5, atol=0)
    assert torch.equal(found_NN, found_NN.T) and not found_NN.diagonal().any()


def test_distances_are_accurate_at_every_scale_of_nested_clusters() -> None:
    """Clusters within clusters: pairs at 1e-8 beside pairs at 1e8."""
    sizes = [1e8, 1e4, 1.0, 1e-4, 1e-8]
    block_ND = torch.cat([torch.zeros(9, 300), *(size * block(2, 300) for size in sizes)])
    block_ND[:9] += block(9, 300, 3)
    found_NN = linalg.squared_distances(Rows.of(block_ND))
    torch.testing.assert_close(found_NN, exact(block_ND), rtol=1e-5, atol=0)


def test_distances_between_clones_are_zero() -> None:
    block_ND = block(12, 5000)
    block_ND[[1, 4, 9]] = block_ND[2].clone()
    block_ND[[0, 7]] = block_ND[11].clone()
    found_NN = linalg.squared_distances(Rows.of(block_ND))
    torch.testing.assert_close(found_NN, exact(block_ND), rtol=1e-5, atol=0)


@pytest.mark.parametrize("size", [1e10, 1e20, 1e30, 3e38])
@pytest.mark.parametrize("hostile", [[0], [0, 1], [3, 5]])
def test_huge_rows_do_not_degrade_distances_between_other_rows(
    size: float, hostile: list[int]
) -> None:
    block_ND = block(9, 3000)
    block_ND[hostile] = size
    kept = [i for i in range(9) if i not in hostile]
    found_NN = linalg.squared_distances(Rows.of(block_ND))
    expected_NN = exact(block_ND)
    torch.testing.assert_close(
        found_NN[kept][:, kept], expected_NN[kept][:, kept], rtol=1e-5, atol=0
    )
    assert bool((found_NN[kept][:, hostile] > 1e18).all())


def test_row_near_median_only_in_samples_does_not_degrade_other_distances() -> None:
    """The row equals the median in the sampled coordinates and is far off in all others."""
    block_ND = block(9, 100_000)
    median_D = linalg.median(Rows.of(block_ND))
    block_ND[4] = 1e12
    for i in range(32):
        start = (100_000 - 64) * i // 31
        block_ND[4, start : start + 64] = median_D[start : start + 64]
    kept = [0, 1, 2, 3, 5, 6, 7, 8]
    found_NN = linalg.squared_distances(Rows.of(block_ND))
    torch.testing.assert_close(
        found_NN[kept][:, kept], exact(block_ND)[kept][:, kept], rtol=1e-5, atol=0
    )


def test_distances_beyond_the_float64_range_are_infinite() -> None:
    block_ND = block(6, 20).double()
    block_ND[[1, 2]] = 1e200
    found_NN = linalg.squared_distances(Rows.of(block_ND))
    assert bool(found_NN[1, [0, 3, 4, 5]].isinf().all()) and not found_NN.isnan().any()
    torch.testing.assert_close(found_NN[0, 3:], exact(block_ND)[0, 3:])


@pytest.mark.parametrize("affine", [True, False])
def test_distances_of_mixed_rows_equal_those_of_dense_algebra(affine: bool) -> None:
    rows = Rows.of(block(8, 600) + 2)
    by_MM = torch.rand(8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    if affine:
        by_MM = by_MM / by_MM.sum(dim=1, keepdim=True)
    mixed = rows.keep([7, 1, 2, 3, 4, 5, 6, 0]).mixed(by_MM)
    linalg.squared_distances(rows)
    written_ND = by_MM @ rows.block_ND.double()[[7, 1, 2, 3, 4, 5, 6, 0]]
    torch.testing.assert_close(
        linalg.squared_distances(mixed), exact(written_ND), rtol=1e-5, atol=1e-9
    )
    geometry = linalg.geometry(mixed)
    squares_M = geometry.gram_MM.diagonal()
    torch.testing.assert_close(
        squares_M[:, None] + squares_M - 2 * geometry.gram_MM,
        geometry.squared_MM,
        rtol=1e-6,
        atol=1e-6,
    )


def test_cached_geometry_is_reused_only_for_the_same_rows() -> None:
    rows = Rows.of(block(5, 50))
    whole = linalg.geometry(rows)
    assert linalg.geometry(rows) is whole
    assert linalg.geometry(rows.columns(slice(0, 20))).squared_MM[0, 1] < whole.squared_MM[0, 1]
    assert linalg.squared_distances(rows.keep([3, 1]))[0, 1] != whole.squared_MM[1, 0]
    linalg.squared_distances(rows)
    assert linalg.squared_distances(rows.keep([3, 1]))[0, 1] == whole.squared_MM[1, 3]
    halved = rows.keep([3, 1]).mixed(torch.eye(2, dtype=torch.float64) / 2)
    torch.testing.assert_close(
        linalg.squared_distances(halved)[0, 1], whole.squared_MM[1, 3] / 4, rtol=1e-6, atol=0
    )


def test_equal_mixtures_have_equal_distances_bit_for_bit() -> None:
    block_ND = block(20, 300)
    by_LM = torch.full((20, 20), 0.05, dtype=torch.float64)
    by_LM[::3] = torch.eye(20, dtype=torch.float64)[4]
    found_LL = linalg.squared_distances(Rows.of(block_ND).mixed(by_LM))
    for first, others in ((0, range(0, 20, 3)), (1, (2, 4, 5, 19))):
        for other in others:
            assert torch.equal(found_LL[other], found_LL[first])
    assert found_LL[0, 3] == found_LL[1, 19] == 0 < found_LL[0, 1]
