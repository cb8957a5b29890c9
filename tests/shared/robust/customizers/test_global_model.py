"""Without customization, a round creates no model but the global model."""

import torch

from rampart_fl.shared.robust import Context, Rows
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.robust.engine import Plan, run_round


def test_every_client_gets_the_global_model() -> None:
    plan = Plan.of("weighted_mean", (), "global_model")
    rows = Rows.of(torch.tensor([[0.0, 2.0], [4.0, 0.0]]), ids=["a", "b"])
    context = Context(reference_D=torch.tensor([1.0, 1.0]))
    outcome = run_round(plan, rows, plan.init(2), context)
    assert outcome.global_D.tolist() == [3.0, 2.0]
    assert outcome.customization.models is None
    assert not outcome.customization.assignment and not outcome.customization.groups
    assert not any(outcome.customization.known(client) for client in ("a", "b", "newcomer"))


def test_global_model_declares_that_it_creates_no_models() -> None:
    member = customizers.build("global_model")
    assert member.common and member.models_of(100) == 0
