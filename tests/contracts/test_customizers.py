"""The contract of all customizers."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.assignment import GLOBAL
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.customizers import Customization, Customizer, customizers
from rampart_fl.shared.robust.models import Mixture

N, D = 6, 12
IDS = [f"client-{i}" for i in range(N)]


@pytest.fixture(params=customizers.names())
def customizer(request: pytest.FixtureRequest) -> Customizer:
    """Every registered customizer, with its defaults."""
    return customizers.build(request.param)


def pool(seed: int = 0) -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(seed))


def context(last: Customization | None = None) -> Context:
    """The context of a round, which may follow another round."""
    layout = (("body.weight", 0, 6), ("head.weight", 6, 10), ("head.bias", 10, 12))
    made = {} if last is None else models(last)
    return Context(round=3, seed=5, reference_D=torch.linspace(0, 1, D), models=made, layout=layout)


def customize(customizer: Customizer, block_ND: Tensor, ids: list[str] = IDS) -> Customization:
    rows = Rows.of(block_ND, ids=ids)
    return customizer.apply(rows, rows, State(), context())[0]


def models(customization: Customization) -> dict[str, Tensor]:
    if customization.models is None:
        return {}
    return {name: customization.models.model(name) for name in customization.models.names}


def received(customization: Customization) -> dict[str, Tensor]:
    """The models from which clients train, if these are not the global model."""
    firsts = {client: names[0] for client in IDS if (names := customization.names_for(client))}
    made = models(customization)
    return {client: made[name] for client, name in firsts.items() if name != GLOBAL}


def test_assignments_name_only_existing_models_and_present_clients(
    customizer: Customizer,
) -> None:
    result = customize(customizer, pool())
    assert set(result.assignment) <= set(IDS)
    named = {name for names in result.assignment.values() for name in names}
    assert named - {GLOBAL} <= set(models(result))
    assert {*result.groups, *result.voters} <= set(models(result))
    assert result.models is not None or not result.assignment


def test_every_mixture_is_the_reference_plus_a_convex_combination_of_rows(
    customizer: Customizer,
) -> None:
    block_ND = pool()
    result = customize(customizer, block_ND)
    reference_D = context().reference_D
    if isinstance(result.models, Mixture):
        mix_LM = result.models.mix_LM
        assert (mix_LM >= 0).all()
        torch.testing.assert_close(mix_LM.sum(dim=1), torch.ones(len(mix_LM)).double())
        for model_D, weights_M in zip(models(result).values(), mix_LM, strict=True):
            torch.testing.assert_close(model_D, reference_D + weights_M.float() @ block_ND)


def test_block_of_models_is_a_copy_of_the_named_models(customizer: Customizer) -> None:
    result = customize(customizer, pool())
    if result.models is None:
        assert not result.assignment
        return
    names = list(result.models.names)[::-2]
    block_LD = result.models.block(names)
    for name, model_D in zip(names, block_LD, strict=True):
        torch.testing.assert_close(model_D, result.models.model(name))
    before_LD = result.models.block(names)
    block_LD.zero_()
    assert torch.equal(result.models.block(names), before_LD)


def test_customizer_does_not_modify_its_inputs(customizer: Customizer) -> None:
    block_ND = pool()
    before_ND, shared = block_ND.clone(), context()
    rows = Rows.of(block_ND, ids=IDS)
    result, _ = customizer.apply(rows, rows, State(), shared)
    for model_D in models(result).values():
        model_D.fill_(7)
    assert torch.equal(block_ND, before_ND)
    assert torch.equal(shared.reference_D, context().reference_D)


def test_models_do_not_depend_on_row_order(customizer: Customizer) -> None:
    order = [4, 0, 5, 2, 1, 3]
    straight = models(customize(customizer, pool()))
    shuffled = models(customize(customizer, pool()[order], [IDS[i] for i in order]))
    assert set(straight) == set(shuffled)
    for name, model_D in straight.items():
        torch.testing.assert_close(model_D, shuffled[name])


def test_identical_rows_give_every_client_the_same_model(customizer: Customizer) -> None:
    row_D = pool()[0]
    for model_D in received(customize(customizer, row_D.repeat(N, 1))).values():
        torch.testing.assert_close(model_D, context().reference_D + row_D)


def test_single_client_receives_its_own_model(customizer: Customizer) -> None:
    result = received(customize(customizer, pool()[:1], IDS[:1]))
    if IDS[0] in result:
        torch.testing.assert_close(result[IDS[0]], context().reference_D + pool()[0])


def test_round_without_rows_gives_the_reference_and_leaves_no_trace(customizer: Customizer) -> None:
    nobody = Rows.of(torch.zeros(0, D))
    result, state = customizer.apply(nobody, nobody, State(), context())
    for model_D in models(result).values():
        torch.testing.assert_close(model_D, context().reference_D)
    rows = Rows.of(pool(), ids=IDS)
    after, _ = customizer.apply(rows, rows, state, context(result))
    for name, model_D in models(customize(customizer, pool())).items():
        torch.testing.assert_close(models(after)[name], model_D)


def test_repeated_round_from_the_same_state_gives_the_same_models(customizer: Customizer) -> None:
    rows = Rows.of(pool(), ids=IDS)
    made, state = customizer.apply(rows, rows, State(), context())
    before = {name: tensor.clone() for name, tensor in state.tensors.items()}
    later = Rows.of(pool(1)[:4], ids=IDS[:4])
    first, _ = customizer.apply(later, later, state, context(made))
    again, _ = customizer.apply(later, later, state, context(made))
    assert all(torch.equal(state.tensors[name], tensor) for name, tensor in before.items())
    assert first.assignment == again.assignment
    for name, model_D in models(first).items():
        assert torch.equal(models(again)[name], model_D)


def test_last_models_are_continued_from_the_context_and_not_kept_in_state(
    customizer: Customizer,
) -> None:
    rows, nobody = Rows.of(pool(), ids=IDS), Rows.of(torch.zeros(0, D))
    result, state = customizer.apply(rows, rows, State(), context())
    assert all(tensor.shape[-1:] != (D,) for tensor in state.tensors.values())
    if not customizer.continues:
        return
    shared = context(result)
    again, _ = customizer.apply(nobody, nobody, state, shared)
    for name, model_D in models(again).items():
        assert torch.equal(model_D, shared.models[name])


def test_rows_of_zeros_give_finite_models(customizer: Customizer) -> None:
    block_ND = pool()
    block_ND[[1, 3]] = 0
    for model_D in models(customize(customizer, block_ND)).values():
        assert model_D.isfinite().all()


def test_probing_customizer_gives_every_newcomer_convex_weights(customizer: Customizer) -> None:
    rows = Rows.of(pool(), ids=IDS)
    if not customizer.probes:
        with pytest.raises(AssertionError, match=customizer.name):
            customizer.customize_newcomer(pool()[0], rows, context())
        return
    for probe_D in (pool(1)[0], torch.zeros(D), torch.full((D,), 1e30)):
        weights_M = customizer.customize_newcomer(probe_D, rows, context())
        assert weights_M.shape == (N,) and (weights_M >= 0).all()
        assert float(weights_M.sum()) == pytest.approx(1)


def test_unknown_parameters_are_refused(customizer: Customizer) -> None:
    with pytest.raises(ConfigurationError, match="no_such_parameter"):
        customizers.build(customizer.name, no_such_parameter=1)


def test_customizer_documents_its_paper_and_costs(customizer: Customizer) -> None:
    member = type(customizer)
    assert member.paper and member.complexity and member.passes
    assert member.__doc__ and member.__doc__ != Customizer.__doc__
