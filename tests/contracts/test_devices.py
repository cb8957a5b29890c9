"""On another device, every member gives the same result, stays there, and rarely waits."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from tests.contracts.conftest import Case, honest
from tests.other_device import SUMS, far, near, other_device

MakeRows = Callable[..., Rows]
F, SMALL, LARGE = 2, 240, (1 << 16) + (1 << 12)
"""Numbers of coordinates: within one chunk, and over two."""
CLOSE = SUMS or {"rtol": 1e-5, "atol": 1e-6}
SCORES = {"dnc": {"rtol": 1e-3}}
"""Relative tolerances of scores on a GPU. The honest rows have no dominant direction, so DnC's top
direction and its scores depend on rounding."""
WAITS = {
    "clustered": 4,
    "dnc": 12,
    "fltrust": 5,
    "foolsgold": 3,
    "gas": 2 * SMALL,
    "performance_aware": 4,
    "sdea": 7,
}
"""How often a stage makes the host wait, if not once for the Gram matrix and once for norms.

DnC waits for both in each of its five tests; SDEA once in each of its steps (here two); GAS for the
norms in each of its pieces (here of one coordinate), and again where a row is the median."""


@pytest.fixture(autouse=True)
def _without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the native kernels, which other devices do not have."""
    monkeypatch.setenv("RAMPART_KERNELS", "torch")


def moved(context: Context) -> Context:
    """The context with its tensors on the other device."""
    held = {f.name: getattr(context, f.name) for f in fields(context)}
    there = {name: far(value) for name, value in held.items() if isinstance(value, Tensor)}
    public = context.public
    if public is not None:
        labels_P = None if public.y_P is None else far(public.y_P)
        there["public"] = replace(public, x_P=far(public.x_P), y_P=labels_P)
    return replace(context, **there)


def agree(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(near(one), other, **CLOSE)


@pytest.mark.parametrize("dim", [SMALL, LARGE])
def test_rule_on_another_device_gives_the_same_result_with_few_waits(
    rule: Case, dim: int, make_rows: MakeRows
) -> None:
    block_ND = honest(dim=dim)
    member, context = rules.build(rule.name, f=F, **rule.parameters), rule.context(dim)
    rows = make_rows(block_ND)
    expected_D, _, report = member.apply(rows, member.init(dim), context)
    with other_device() as device:
        context = moved(context)
        rows = make_rows(far(block_ND))
        device.waits.clear()
        found_D, state, observed = member.apply(rows, member.init(dim), context)
        waits = device.waits.copy()
        member.apply(rows, state, context)  # It can continue from its state.
    agree(found_D, expected_D)
    close = {**CLOSE, **SCORES.get(rule.name, {})} if SUMS else CLOSE
    for name, column_M in report.per_row.items():
        torch.testing.assert_close(observed.per_row[name], column_M, **close)
    assert waits.total() <= WAITS.get(rule.name, 2), waits


def test_preaggregator_on_another_device_gives_the_same_rows_with_few_waits(
    preaggregator: Case, make_rows: MakeRows
) -> None:
    block_ND, context = honest(dim=SMALL), preaggregator.context(SMALL)
    member = preaggregators.build(preaggregator.name, f=F, **preaggregator.parameters)
    rows = make_rows(block_ND)
    expected, _, _ = member.apply(rows, member.init(SMALL), context)
    with other_device() as device:
        rows, context = make_rows(far(block_ND)), moved(context)
        device.waits.clear()
        result, _, _ = member.apply(rows, member.init(SMALL), context)
        assert device.waits.total() <= WAITS.get(preaggregator.name, 2), device.waits
        assert result.ids == expected.ids
        for i in range(len(result)):
            agree(result.row(i), expected.row(i))


@pytest.mark.parametrize("name", detectors.names())
def test_detector_on_another_device_gives_the_same_verdicts(name: str, make_rows: MakeRows) -> None:
    quick: Mapping[str, Any] = {"fedredefense": {"iterations": 3, "steps": 2}}
    member = detectors.parse({"name": name, **quick.get(name, {})}, f=F)
    block_ND = honest(dim=SMALL)
    block_ND[3] *= -40
    context = replace(Case(name).context(SMALL), aggregate_D=torch.ones(SMALL), shape=(60,))

    def judge(rows: Rows, context: Context) -> list[Any]:
        state, results = State(), []
        for _ in range(2):
            verdicts, state = member.apply(rows, state, context)
            results += [(v.client, v.decision, pytest.approx(v.score, rel=1e-4)) for v in verdicts]
        return results

    expected = judge(make_rows(block_ND), context)
    with other_device():
        assert judge(make_rows(far(block_ND)), moved(context)) == expected


@pytest.mark.parametrize("name", customizers.names())
def test_customizer_on_another_device_makes_the_same_models(name: str, make_rows: MakeRows) -> None:
    member, block_ND = customizers.build(name), honest(dim=SMALL)
    layout = (("body.weight", 0, SMALL - 10), ("head.weight", SMALL - 10, SMALL))
    context = Context(round=3, seed=5, reference_D=torch.linspace(0, 1, SMALL), layout=layout)
    rows = make_rows(block_ND)
    expected, _ = member.apply(rows, rows, State(), context)
    with other_device():
        rows = make_rows(far(block_ND))
        result, _ = member.apply(rows, rows, State(), moved(context))
        assert result.assignment == expected.assignment
        assert (result.models is None) == (expected.models is None)
        if result.models is not None and expected.models is not None:
            assert result.models.names == expected.models.names
            for model in result.models.names:
                agree(result.models.model(model), expected.models.model(model))
