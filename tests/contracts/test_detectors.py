"""The contract of all detectors."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.base import Detector
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.eviction import SEVERITY

N, F, D = 11, 2, 40
IDS = [f"client-{i:02d}" for i in range(N)]

FINDS: Mapping[str, float] = {
    "norm_bound": 50.0,
    "cosine": -1.0,
    "cross_round": -1.0,
    "selection": 50.0,
}
"""The factor by which a test scales an update so that the detector objects."""


QUICK: Mapping[str, Mapping[str, Any]] = {
    "fedredefense": {"iterations": 3, "warm_iterations": 2, "steps": 2},
}
"""Parameters that shorten long computations."""

ALONE = ("norm_bound", "cross_round", "fedredefense")
"""Detectors that judge each client alone, as their breakdown says."""


@pytest.fixture(params=detectors.names())
def detector(request: pytest.FixtureRequest) -> Detector:
    """Every registered detector; those that take a bound get F."""
    return detectors.parse({"name": request.param, **QUICK.get(request.param, {})}, f=F)


def honest(turn: int = 0) -> Tensor:
    draws = torch.Generator().manual_seed(turn)
    common_D = torch.ones(D)
    return common_D + 0.3 * torch.randn(N, D, generator=draws)


def context(turn: int = 0) -> Context:
    return Context(
        round=turn,
        seed=5,
        reference_D=torch.zeros(D),
        aggregate_D=torch.ones(D),
        predict=linear,
        shape=(10,),
    )


def linear(models_KD: Tensor, x_KB: Tensor) -> Tensor:
    """Logits of D/10 classes from 10 features."""
    return x_KB @ models_KD.view(len(models_KD), -1, 10).transpose(1, 2)


def judge(detector: Detector, blocks: list[Tensor], ids: list[str] = IDS) -> tuple[Any, State]:
    """The verdicts on the last of several rounds, and the state after it."""
    state, verdicts = detector.init(D), ()
    for turn, block_ND in enumerate(blocks):
        verdicts, state = detector.apply(Rows.of(block_ND, ids=ids), state, context(turn))
    return verdicts, state


def test_every_row_gets_one_verdict_in_order_with_finite_evidence(detector: Detector) -> None:
    verdicts, _ = judge(detector, [honest(), honest(1)])
    assert [verdict.client for verdict in verdicts] == IDS
    for verdict in verdicts:
        assert verdict.decision in SEVERITY
        assert verdict.detector == detector.name
        assert all(map(isfinite, [verdict.score, verdict.threshold, verdict.evidence]))
        assert verdict.reason


def test_detector_neither_modifies_nor_retains_its_inputs(detector: Detector) -> None:
    block_ND, state = honest(), detector.init(D)
    before_ND = block_ND.clone()
    _, state = detector.apply(Rows.of(block_ND, ids=IDS), state, context())
    held = {name: tensor.clone() for name, tensor in state.tensors.items()}
    detector.apply(Rows.of(honest(1), ids=IDS), state, context(1))
    assert torch.equal(block_ND, before_ND)
    block_ND.zero_()
    assert all(torch.equal(state.tensors[name], tensor) for name, tensor in held.items())


def test_detector_declares_whether_it_keeps_rows(detector: Detector) -> None:
    _, state = judge(detector, [honest(), honest(1)])
    rows = [name for name, tensor in state.tensors.items() if tensor.shape == (N, D)]
    assert len(rows) == detector.remembers


def test_the_same_rounds_give_the_same_verdicts(detector: Detector) -> None:
    first, state = judge(detector, [honest(), honest(1)])
    again, other = judge(detector, [honest(), honest(1)])
    assert first == again and state.ids == other.ids
    assert all(torch.equal(state.tensors[name], other.tensors[name]) for name in state.tensors)


def test_verdicts_do_not_depend_on_row_order(detector: Detector) -> None:
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1)).tolist()
    straight, _ = judge(detector, [honest(), honest(1)])
    shuffled, _ = judge(detector, [honest()[order], honest(1)[order]], [IDS[i] for i in order])
    for one, other in zip(straight, shuffled, strict=True):
        assert (one.client, one.decision) == (other.client, other.decision)
        assert one.score == pytest.approx(other.score, rel=1e-6)


def test_state_names_the_client_of_every_row_it_holds(detector: Detector) -> None:
    _, state = judge(detector, [honest()])
    for name, ids in state.ids.items():
        assert len(state.tensors[name]) == len(ids) and set(ids) <= set(IDS)


def test_detector_handles_clients_that_join_and_leave(detector: Detector) -> None:
    state = detector.init(D)
    for turn, present in enumerate([range(5), range(3, N), range(1), range(N)]):
        ids = [IDS[i] for i in present]
        rows = Rows.of(honest(turn)[list(present)], ids=ids)
        try:
            verdicts, state = detector.apply(rows, state, context(turn))
        except PreconditionError as error:
            assert f"n={len(ids)}" in str(error) and len(ids) < N
            continue
        assert [verdict.client for verdict in verdicts] == ids


def test_non_finite_rows_do_not_affect_other_clients(detector: Detector) -> None:
    block_ND = honest()
    block_ND[4, 0] = float("nan")
    verdicts, state = detector.apply(Rows.of(block_ND, ids=IDS), detector.init(D), context())
    finite = [client for client in IDS if client != IDS[4]]
    assert [verdict.client for verdict in verdicts[: N - 1]] == finite
    assert {verdict.client for verdict in verdicts[N - 1 :]} <= {IDS[4]}
    assert all(verdict.decision != "accepted" for verdict in verdicts[N - 1 :])
    assert all(tensor.isfinite().all() for tensor in state.tensors.values())


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30, 3e38])
def test_rows_of_any_magnitude_get_finite_scores(detector: Detector, size: float) -> None:
    blocks = [honest(), honest(1)]
    blocks[1][3] = size
    verdicts, _ = judge(detector, blocks)
    assert all(isfinite(verdict.score) for verdict in verdicts)


@pytest.mark.parametrize("name", sorted(FINDS))
def test_detector_flags_exactly_the_manipulated_rows(name: str) -> None:
    detector = detectors.parse(
        {"name": name, **({"rule": "filtering"} if name == "selection" else {})}, f=F
    )
    blocks = [honest(turn) for turn in range(3)]
    blocks[2][[3, 7]] *= FINDS[name]
    verdicts, _ = judge(detector, blocks)
    out = {verdict.client for verdict in verdicts if verdict.decision != "accepted"}
    assert out == {IDS[3], IDS[7]}


def test_view_gets_the_same_verdicts_as_materialized_rows(detector: Detector) -> None:
    block_ND = honest()
    whole = Rows.of(block_ND, ids=IDS)
    kept = [0, 1, 2, 3, 4, 5, 6, 8, 10]
    alone = Rows.of(block_ND[kept], ids=[IDS[i] for i in kept])
    for view in (whole.keep(kept), alone.mixed(torch.eye(len(kept)))):
        seen, _ = detector.apply(view, detector.init(D), context())
        expected, _ = detector.apply(alone, detector.init(D), context())
        for one, other in zip(seen, expected, strict=True):
            assert one.decision == other.decision
            assert one.score == pytest.approx(other.score, rel=1e-6)


def test_forget_removes_exactly_the_barred_clients_from_state(detector: Detector) -> None:
    _, state = judge(detector, [honest(), honest(1)])
    before = {name: state.by_id(name) for name in state.ids}
    after = detector.forget(state, {IDS[1], IDS[3], "nobody"})
    for name, held in before.items():
        kept = after.by_id(name)
        assert kept.keys() == held.keys() - {IDS[1], IDS[3]}
        assert all(torch.equal(kept[client], held[client]) for client in kept)
    assert {name: state.by_id(name).keys() for name in state.ids} == {
        name: held.keys() for name, held in before.items()
    }
    verdicts, _ = detector.apply(Rows.of(honest(2), ids=IDS), after, context(2))
    assert [verdict.client for verdict in verdicts] == IDS
    everyone = detector.forget(after, set(IDS))
    assert not any(everyone.by_id(name) for name in everyone.ids)
    detector.apply(Rows.of(honest(2), ids=IDS), everyone, context(2))


@pytest.mark.parametrize("name", ["norm_bound", "robust_distance"])
def test_eviction_that_is_not_carried_out_is_requested_again(name: str) -> None:
    detector = detectors.parse(name)
    blocks = [honest(turn) for turn in range(6)]
    for block_ND in blocks:
        block_ND[3] *= -1e3
    state, decisions = detector.init(D), []
    for turn, block_ND in enumerate(blocks):
        verdicts, state = detector.apply(Rows.of(block_ND, ids=IDS), state, context(turn))
        decisions.append(verdicts[3].decision)
    first = decisions.index("evicted")
    assert first < 3
    assert decisions[first:] == ["evicted"] * (len(decisions) - first)


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e3, 1e30, float("nan")])
def test_colluders_do_not_affect_an_honest_row_in_one_round(name: str, size: float) -> None:
    """All other rows are equal rows of any length, or copies of the honest row if `size` is 1."""
    detector = detectors.parse({"name": name, **QUICK.get(name, {})})
    _, state = judge(detector, [honest()])
    for mine, row_D in enumerate(honest(1)[:2]):
        hostile_ND = (row_D * size).repeat(N, 1)
        hostile_ND[mine] = row_D
        alone = Rows.of(row_D[None], ids=[IDS[mine]])
        ((expected,), _) = detector.apply(alone, state, context(1))
        seen, _ = detector.apply(Rows.of(hostile_ND, ids=IDS), state, context(1))
        (found,) = (verdict for verdict in seen if verdict.client == IDS[mine])
        assert found.decision == expected.decision
        assert found.score == pytest.approx(expected.score, rel=1e-6)


def test_unknown_parameters_are_refused(detector: Detector) -> None:
    with pytest.raises(ConfigurationError, match="no_such_parameter"):
        detectors.build(detector.name, no_such_parameter=1)


def test_screening_does_not_depend_on_aggregate_or_reference(detector: Detector) -> None:
    if detector.when == "audit":
        pytest.skip("an audit looks at the aggregate")
    if detector.needs():
        pytest.skip("it asks for the network, and where the models stand")
    verdicts, _ = detector.apply(Rows.of(honest(), ids=IDS), detector.init(D), context())
    bare = replace(context(), aggregate_D=None, reference_D=None)
    again, _ = detector.apply(Rows.of(honest(), ids=IDS), detector.init(D), bare)
    assert verdicts == again


def test_detector_documents_its_paper_breakdown_and_complexity(detector: Detector) -> None:
    member = type(detector)
    assert member.paper and member.breakdown and member.complexity
    assert member.__doc__ and member.__doc__ != Detector.__doc__
