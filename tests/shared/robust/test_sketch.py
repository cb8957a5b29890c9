"""Sketches keep inner products."""

import pytest
import torch

from rampart_fl.shared.robust.sketch import AT_ONCE, Traces, sketch
from rampart_fl.shared.seeding import generator


def test_inner_products_are_exact_for_vectors_no_longer_than_the_sketch() -> None:
    draws = torch.Generator().manual_seed(1)
    a_D, b_D = torch.randn(2, 50, generator=draws)
    assert float(sketch(a_D, 64, seed=0) @ sketch(b_D, 64, seed=0)) == pytest.approx(
        float(a_D @ b_D), abs=1e-4
    )


def test_a_sketch_sums_every_kth_coordinate_with_its_sign() -> None:
    signs = [float(sketch(torch.eye(5)[i], 2, seed=0)[i % 2]) for i in range(5)]
    assert {abs(sign) for sign in signs} == {1.0}
    x_D = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    expected = [sum(signs[i] * x_D[i] for i in (0, 2, 4)), sum(signs[i] * x_D[i] for i in (1, 3))]
    assert sketch(x_D, 2, seed=0).tolist() == pytest.approx([float(part) for part in expected])


def test_inner_products_of_long_vectors_deviate_as_documented() -> None:
    draws = torch.Generator().manual_seed(2)
    errors = []
    for _ in range(40):
        a_D, b_D = torch.randn(2, 20_000, generator=draws)
        b_D = b_D + 0.5 * a_D
        scale = float(a_D.norm() * b_D.norm())
        errors.append(
            float(sketch(a_D, 1024, seed=0) @ sketch(b_D, 1024, seed=0) - a_D @ b_D) / scale
        )
    deviation = float(torch.tensor(errors).square().mean().sqrt())
    assert 0.5 / 1024**0.5 < deviation < 2 / 1024**0.5


@pytest.mark.parametrize("dim", [50, 5000, 200_000])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.0, 0.3), (0.21, 0.87), (0.5, 0.5)])
def test_coordinates_outside_the_given_range_count_as_zeros(
    dim: int, ends: tuple[float, float]
) -> None:
    x_D = torch.randn(dim, generator=torch.Generator().manual_seed(4))
    first, last = (int(end * dim) for end in ends)
    inside_D = torch.zeros(dim)
    inside_D[first:last] = x_D[first:last]
    torch.testing.assert_close(
        sketch(x_D, 64, seed=0, within=(first, last)), sketch(inside_D, 64, seed=0)
    )


@pytest.mark.parametrize("dim", [7, 1000, AT_ONCE + 13])
def test_long_and_short_vectors_get_the_drawn_signs(dim: int) -> None:
    draws = generator(3, "sketch", dim, 8)
    signs_D = 2 * torch.randint(0, 2, (dim,), generator=draws, dtype=torch.int8) - 1
    x_D = torch.ones(dim)
    expected_K = torch.stack([signs_D[k::8].double().sum() for k in range(8)])
    assert sketch(x_D, 8, seed=3).tolist() == expected_K.tolist()
    inside_D = torch.zeros(dim)
    inside_D[3 : dim - 2] = 1
    within_K = sketch(x_D, 8, seed=3, within=(3, dim - 2))
    assert torch.equal(within_K, sketch(inside_D, 8, seed=3))


def test_sketching_leaves_the_vector_unchanged() -> None:
    x_D = torch.ones(10)
    sketch(x_D, 4, seed=0)
    assert torch.equal(x_D, torch.ones(10))


def test_traces_are_selected_by_row_index() -> None:
    traces = Traces(torch.eye(3), 2 * torch.eye(3)).keep(torch.tensor([2, 0]))
    assert torch.equal(traces.upload_MK, torch.eye(3)[[2, 0]])
    assert torch.equal(traces.start_MK, 2 * torch.eye(3)[[2, 0]])
