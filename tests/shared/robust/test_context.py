"""The context of a round: its draws, the last layer, and what stages need from it."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import Context, aggregate
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.shards import Part


def test_draws_depend_on_seed_and_round() -> None:
    def draw(**where: int) -> float:
        return float(torch.rand(1, generator=Context(**where).generator("x")))

    assert draw(seed=1, round=2) == draw(seed=1, round=2)
    assert len({draw(seed=1, round=2), draw(seed=2, round=1), draw(seed=1, round=3)}) == 3


def test_last_layer_covers_all_parameters_of_the_named_layer() -> None:
    layout = (("b.bias", 0, 1), ("b.weight", 1, 3), ("ba.weight", 3, 6), ("c.weight", 6, 7))
    assert Context(layout=layout, head="b").last_layer() == slice(0, 3)
    assert Context(layout=layout, head="c").last_layer() == slice(6, 7)
    assert Context(layout=layout).last_layer() == slice(0, 7)
    with pytest.raises(ConfigurationError, match="no layout"):
        Context().last_layer()


def test_plan_needs_what_its_stages_need() -> None:
    assert Plan.of("median").needs() == {}
    assert Plan.of(["nnm", "fltrust"], f=1).needs() == {"server_update": "fltrust"}
    wrapped = {"name": "performance_aware", "rule": "fltrust"}
    assert Plan.of(wrapped).needs() == {"server_update": "performance_aware"}


@pytest.mark.parametrize("name", rules.names())
def test_rules_fail_without_context_only_if_they_need_it(name: str) -> None:
    rule = rules.build(name, f=1)
    gaps = {"loss_gap": [1.0] * 9}
    block_ND = torch.randn(9, 3, generator=torch.Generator().manual_seed(1))
    if not rule.needs():
        assert aggregate(block_ND, rule, metadata=gaps).isfinite().all()
    else:
        with pytest.raises(ConfigurationError, match=name):
            aggregate(block_ND, rule, metadata=gaps)


def test_server_update_must_match_the_row_shape_and_be_finite() -> None:
    held_D = torch.ones(3)
    assert Context(server_update_D=held_D).own_update("fltrust", Part(3, 0, 3)) is held_D
    with pytest.raises(ConfigurationError, match="no root data"):
        Context().own_update("fltrust", Part(3, 0, 3))
    with pytest.raises(ConfigurationError, match=r"shape \(3,\), but each row has 4"):
        Context(server_update_D=held_D).own_update("fltrust", Part(4, 0, 4))
    for lost in (float("nan"), float("inf")):
        with pytest.raises(PreconditionError, match="fltrust: the server's own update is not fin"):
            Context(server_update_D=torch.tensor([1.0, lost])).own_update("fltrust", Part(2, 0, 2))
