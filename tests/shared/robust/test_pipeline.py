"""Pipelines: how stages are named, checked and chained, and how they keep their states."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import (
    ConfigurationError,
    PreconditionError,
    TooFewRows,
    UnknownMember,
)
from rampart_fl.shared.robust import Context, Pipeline, Report, Rows, State, aggregate
from rampart_fl.shared.robust.base import PreAggregator, Rule
from rampart_fl.shared.robust.pipeline import join_states, split_state, substate
from rampart_fl.shared.robust.rules.krum import Krum
from rampart_fl.shared.robust.rules.median import Median


class Doubles(PreAggregator):
    """A pre-aggregator for these tests that doubles every row and counts its rounds."""

    def init(self, dim: int) -> State:
        return State({"turns": torch.zeros(dim)})

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        mixed = rows.mixed(2 * torch.eye(len(rows)))
        return mixed, State({"turns": state.tensors["turns"] + 1}), Report("doubles", rows.ids)


BLOCK_ND = torch.tensor([[1.0], [2.0], [9.0]])


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("rule", ["median", "krum", "geometric_median", "weighted_mean"])
def test_result_is_detached_from_the_autograd_graph_of_updates(
    rule: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMPART_KERNELS", kernels)
    result_D = aggregate(BLOCK_ND.clone().requires_grad_(), rule)
    assert torch.equal(result_D, aggregate(BLOCK_ND, rule)) and not result_D.requires_grad


def test_stage_may_be_a_name_a_table_or_an_instance() -> None:
    for spec in ("median", {"name": "median"}, Median(), ["median"], [{"name": "median"}]):
        assert float(aggregate(BLOCK_ND, spec)) == 2


def test_stage_inherits_f_unless_it_sets_its_own() -> None:
    pipeline = Pipeline.of([{"name": "krum"}], f=3)
    assert isinstance(pipeline.rule, Krum) and pipeline.rule.f == 3
    assert Pipeline.of([{"name": "krum", "f": 1}], f=3).rule.f == 1
    assert Pipeline.of([Krum(f=2)], f=3).rule.f == 2


def test_stages_run_in_order_and_report_in_order() -> None:
    pipeline = Pipeline.of([Doubles(), Doubles(), "median"])
    result_D, state, reports = pipeline.apply(Rows.of(BLOCK_ND), pipeline.init(1), Context())
    assert float(result_D) == 8
    assert [report.stage for report in reports] == ["doubles", "doubles", "median"]
    _, state, _ = pipeline.apply(Rows.of(BLOCK_ND), state, Context())
    assert {name: float(tensor) for name, tensor in state.tensors.items()} == {
        "0-/turns": 2,
        "1-/turns": 2,
    }


def test_pipeline_requires_exactly_one_rule_at_its_end() -> None:
    with pytest.raises(ConfigurationError, match="needs a rule"):
        Pipeline.of([])
    with pytest.raises(ConfigurationError, match="ends with a rule"):
        Pipeline.of(["median", Doubles()])
    with pytest.raises(ConfigurationError, match="'median' is also a rule"):
        Pipeline.of(["median", "median"])


def test_error_about_too_few_rows_says_that_earlier_stages_reduced_them() -> None:
    rows_ND = torch.arange(24.0).view(12, 2)
    lacking = "krum needs n >= 2f + 3 = 7 rows: n=6, f=2"
    with pytest.raises(TooFewRows) as error:
        aggregate(rows_ND, ["bucketing", "nnm", "krum"], f=2)
    assert error.value.detail == f"{lacking}; the earlier stages turned 12 rows into 6"
    with pytest.raises(TooFewRows) as error:
        aggregate(rows_ND[:6], ["nnm", "krum"], f=2)
    assert error.value.detail == lacking


def test_unknown_and_unnamed_stages_are_rejected_with_suggestions() -> None:
    with pytest.raises(UnknownMember, match="did you mean 'median'"):
        aggregate(BLOCK_ND, "medain")
    with pytest.raises(ConfigurationError, match=r"a stage needs a name, not .*'f': 1.* krum"):
        aggregate(BLOCK_ND, [{"f": 1}])
    for stages in (None, 3, [None], [["median"]]):
        with pytest.raises(ConfigurationError, match="stage"):
            aggregate(BLOCK_ND, stages)  # type: ignore[arg-type]  # invalid on purpose


def test_dropping_all_rows_raises_with_the_number_dropped() -> None:
    with pytest.raises(PreconditionError, match="n=0 after leaving out 2"):
        aggregate(torch.full((2, 3), float("nan")), "median")


def test_sequences_and_other_float_types_are_accepted() -> None:
    assert float(aggregate([torch.tensor([1.0]), torch.tensor([3.0])], "median")) == 2
    assert aggregate(BLOCK_ND.bfloat16(), "median").dtype == torch.float32
    assert aggregate(BLOCK_ND.double(), "median").dtype == torch.float64


@pytest.mark.parametrize("block_ND", [np.zeros((0, 3)), torch.zeros(0, 3), torch.zeros(3, 0).T])
def test_empty_blocks_are_rejected_in_any_memory_layout(block_ND: Any) -> None:
    with pytest.raises(PreconditionError, match="n=0"):
        aggregate(block_ND, "median")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_csr_updates_are_rejected() -> None:
    with pytest.raises(ValueError, match="dense"):
        aggregate(torch.eye(2).to_sparse_csr(), "median")


def test_numpy_arrays_may_have_negative_strides_or_foreign_byte_order() -> None:
    array_ND = np.array([[1.0, 5.0], [2.0, 6.0], [9.0, 7.0]])
    assert aggregate(array_ND[::-1, ::-1], "median").tolist() == [6, 2]
    assert aggregate(array_ND.astype(">f4"), "median").tolist() == [2, 6]
    assert aggregate([row[::-1] for row in array_ND], "median").tolist() == [6, 2]


def test_read_only_numpy_arrays_and_lists_are_accepted() -> None:
    array_ND = BLOCK_ND.numpy().copy()
    array_ND.flags.writeable = False
    expected_D = aggregate(BLOCK_ND, "median")
    for rows in (array_ND, list(array_ND), BLOCK_ND.tolist()):
        assert torch.equal(aggregate(rows, "median"), expected_D)
    assert aggregate(array_ND.astype("float64"), "median").dtype == torch.float64


@pytest.mark.parametrize(
    "updates",
    [
        torch.ones(2, 3, dtype=torch.int64),
        torch.ones(2, 3).to(torch.float8_e4m3fn),
        torch.ones(2, 3).to_sparse(),
        torch.ones(3),
        [[1.0, 2.0], [3.0]],
        [],
    ],
    ids=lambda updates: str(getattr(updates, "dtype", updates)),
)
def test_invalid_updates_are_rejected_with_a_reason(updates: Any) -> None:
    with pytest.raises(ValueError, match=r"updates must be (a dense floating|vectors of one)"):
        aggregate(updates, "median")


def test_states_are_joined_and_split_without_loss() -> None:
    tensors = {"a": torch.ones(2), "b": torch.zeros(1)}
    states = {"x": State(tensors, {"a": ("i", "j")}), "y": State({"a": torch.ones(3)})}
    joined = join_states(states)
    assert set(joined.tensors) == {"x/a", "x/b", "y/a"} and joined.ids == {"x/a": ("i", "j")}
    back = split_state(joined)
    assert set(back) == {"x", "y"} and back["x"].ids == {"a": ("i", "j")}
    assert set(back["x"].tensors) == {"a", "b"}
    nested = join_states({"outer": joined})
    assert set(substate(nested, "outer").tensors) == set(joined.tensors)
    assert not split_state(State())


def test_an_aggregate_of_another_shape_is_refused() -> None:
    class Short(Rule):
        """A rule that forgets a coordinate."""

        def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
            return rows.block_ND[0, :-1], state, Report(self.name, rows.ids)

    with pytest.raises(ConfigurationError, match=r"aggregate of shape \(0,\)"):
        aggregate(BLOCK_ND, Short())


class Wide(Rule):
    """A rule for these tests: computes in float64."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        return torch.zeros(rows.dim, dtype=torch.float64), state, Report("wide")


class Listing(Rule):
    """A rule for these tests: reports a list instead of a tensor."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        columns: Any = {"weight": [1.0] * len(rows)}
        return torch.zeros(rows.dim), state, Report("listing", rows.ids, columns)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Wide(), r"Wide.*torch\.float64 for torch\.float32 rows"),
        (Listing(), "'weight' in the report"),
    ],
)
def test_wrong_results_of_own_rules_are_refused_by_name(rule: Rule, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        aggregate(torch.ones(3, 2), rule)


def test_pre_aggregator_must_return_rows() -> None:
    class Densifies(PreAggregator):
        def apply(self, rows: Rows, state: State, context: Context) -> Any:
            return torch.zeros(2, rows.dim), state, Report("densifies")

    with pytest.raises(ConfigurationError, match="'Densifies' must return"):
        aggregate(torch.ones(3, 2), [Densifies(), "median"])
