"""FLTrust: the worked example, the bound on the result's length, and zero updates."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, aggregate

SERVER = Context(server_update_D=torch.tensor([3.0, 4.0]))


def test_fltrust_reproduces_the_worked_example() -> None:
    block_ND = torch.tensor([[6.0, 8.0], [-3.0, -4.0], [4.0, -3.0], [30.0, 40.0]])
    torch.testing.assert_close(
        aggregate(block_ND, "fltrust", context=SERVER), torch.tensor([3.0, 4.0])
    )


def test_server_update_of_another_shape_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"shape \(2,\), but each row has 5 coordinates"):
        aggregate(torch.ones(3, 5), "fltrust", context=SERVER)


def test_fltrust_equals_a_plain_loop() -> None:
    draws = torch.Generator().manual_seed(2)
    block_ND = torch.randn(6, 10, generator=draws, dtype=torch.float64)
    server_D = torch.randn(10, generator=draws, dtype=torch.float64)
    total_D, trusts = torch.zeros(10, dtype=torch.float64), 0.0
    for row_D in block_ND:
        trust = max(0.0, float(row_D @ server_D / (row_D.norm() * server_D.norm())))
        total_D += trust * row_D * server_D.norm() / row_D.norm()
        trusts += trust
    result_D = aggregate(block_ND, "fltrust", context=Context(server_update_D=server_D))
    torch.testing.assert_close(result_D, total_D / trusts)


@pytest.mark.parametrize("block_ND", [torch.tensor([[-3.0, -4.0], [4.0, -3.0]]), torch.zeros(3, 2)])
def test_no_update_if_no_row_is_trusted(block_ND: torch.Tensor) -> None:
    assert not aggregate(block_ND, "fltrust", context=SERVER).any()


def test_no_update_if_the_server_update_is_zero() -> None:
    context = Context(server_update_D=torch.zeros(2))
    assert not aggregate(torch.ones(3, 2), "fltrust", context=context).any()


@given(st.integers(0, 10_000), st.floats(1e-20, 1e30))
def test_row_scale_is_ignored_and_server_update_bounds_the_result_length(
    seed: int, scale: float
) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(5, 4, generator=draws)
    context = Context(server_update_D=torch.randn(4, generator=draws))
    assert context.server_update_D is not None
    plain_D = aggregate(block_ND, "fltrust", context=context)
    block_ND[2] *= scale
    scaled_D = aggregate(block_ND, "fltrust", context=context)
    torch.testing.assert_close(plain_D, scaled_D, rtol=1e-4, atol=1e-5)
    assert scaled_D.norm() <= context.server_update_D.norm() * (1 + 1e-5)


def test_missing_root_data_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="root data"):
        aggregate(torch.ones(2, 2), "fltrust")


@pytest.mark.parametrize("kernels", ["torch", "auto"])
def test_row_that_is_too_short_to_be_scaled_gets_no_trust(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """|u| / |x| would overflow float32, and the result would be infinite."""
    monkeypatch.setenv("RAMPART_KERNELS", kernels)
    block_ND = torch.tensor([[6.0, 8.0], [3e-40, 4e-40]])
    result_D = aggregate(block_ND, "fltrust", context=SERVER)
    torch.testing.assert_close(result_D, torch.tensor([3.0, 4.0]))
