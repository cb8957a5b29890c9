"""MoNNA: nearest neighbours of a pivot."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError, MissingRow
from rampart_fl.shared.robust import Context, aggregate

LINE = torch.tensor([[0.0], [1.0], [2.0], [9.0], [3.0]])


def test_rows_nearest_to_the_pivot_are_averaged() -> None:
    assert aggregate(LINE, {"name": "monna", "pivot": "0"}, f=2).item() == 1
    assert aggregate(LINE, {"name": "monna", "pivot": "3"}, f=2).item() == pytest.approx(14 / 3)


def test_server_update_serves_as_the_pivot() -> None:
    context = Context(server_update_D=torch.tensor([8.0]))
    assert aggregate(LINE, "monna", f=2, context=context).item() == pytest.approx(14 / 3)


def test_server_update_of_another_shape_is_rejected() -> None:
    context = Context(server_update_D=torch.ones(2))
    with pytest.raises(ConfigurationError, match=r"shape \(2,\), but each row has 1 coordinates"):
        aggregate(LINE, "monna", context=context)


def test_missing_pivot_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="pivot"):
        aggregate(LINE, "monna", f=1)
    with pytest.raises(MissingRow, match="'x'"):
        aggregate(LINE, {"name": "monna", "pivot": "x"}, f=1)
