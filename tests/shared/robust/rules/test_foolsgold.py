"""FoolsGold, checked by hand and against a plain loop."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules.foolsgold import FoolsGold


def run(block_ND: Tensor, ids: list[str], state: State | None = None) -> tuple[Tensor, State, dict]:
    result_D, state, report = FoolsGold().apply(
        Rows.of(block_ND, ids=ids), state or State(), Context()
    )
    return result_D, state, report.column("score")


def by_loop(histories: list[list[float]]) -> list[float]:
    """The definition, entry by entry."""
    n = len(histories)
    cs = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            if i != j:
                dot = sum(a * b for a, b in zip(histories[i], histories[j], strict=True))
                cs[i][j] = dot / (math.hypot(*histories[i]) * math.hypot(*histories[j]))
    likest = [max(row) for row in cs]
    for i in range(n):
        for j in range(n):
            if likest[i] < likest[j]:
                cs[i][j] *= likest[i] / likest[j]
    alpha = [min(max(1 - max(row), 0.0), 1.0) for row in cs]
    if max(alpha) < 1e-6:
        return [0.0] * n
    scaled = [min(a / max(alpha), 0.99) if a >= 1e-6 else 0.0 for a in alpha]
    return [0.0 if a == 0 else min(max(math.log(a / (1 - a)) + 0.5, 0.0), 1.0) for a in scaled]


def test_orthogonal_rows_get_full_weight_and_clones_get_none() -> None:
    clones_ND = torch.cat([torch.eye(4)[:3], torch.eye(4)[3:].repeat(3, 1)])
    _, _, scores = run(clones_ND, list("abcdef"))
    assert list(scores.values()) == [1, 1, 1, 0, 0, 0]


def test_orthogonal_rows_all_get_full_weight() -> None:
    result_D, _, scores = run(torch.eye(4), list("abcd"))
    assert set(scores.values()) == {1}
    torch.testing.assert_close(result_D, torch.full((4,), 0.25))


def test_no_update_if_all_rows_are_identical() -> None:
    result_D, _, scores = run(torch.tensor([[0.1, 0.7, -0.3]]).repeat(5, 1), list("abcde"))
    assert set(scores.values()) == {0} and not result_D.any()


def test_single_row_gets_full_weight() -> None:
    result_D, _, _ = run(torch.tensor([[1.0, 2.0]]), ["a"])
    assert torch.equal(result_D, torch.tensor([1.0, 2.0]))


def test_zero_row_is_similar_to_no_other_row() -> None:
    _, _, scores = run(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), list("abc"))
    assert scores == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(("alpha", "expected"), [(0.37, 0.0), (0.5, 0.5), (0.63, 1.0)])
def test_logit_saturates_at_zero_and_one(alpha: float, expected: float) -> None:
    cosines_MM = torch.eye(3)
    cosines_MM[1, 2] = cosines_MM[2, 1] = 1 - alpha
    weights_M = FoolsGold().weights(cosines_MM)
    assert weights_M[0] == 1 and float(weights_M[1]) == pytest.approx(expected)


@given(st.integers(2, 7), st.integers(0, 10_000))
def test_scores_equal_a_plain_loop(n: int, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(n, 3, generator=draws, dtype=torch.float64)
    _, _, scores = run(block_ND, [str(i) for i in range(n)])
    assert list(scores.values()) == pytest.approx(by_loop(block_ND.tolist()), abs=1e-6)


def test_history_is_kept_by_client_rather_than_position() -> None:
    _, state, _ = run(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ["a", "b"])
    _, state, scores = run(torch.tensor([[0.0, 2.0], [3.0, 0.0]]), ["b", "c"], state)
    assert scores == {"b": 1, "c": 1}
    history = {client: row.tolist() for client, row in state.by_id("history").items()}
    assert history == {"a": [1, 0], "b": [0, 3], "c": [3, 0]}
    _, _, scores = run(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), list("abc"), state)
    assert scores == {"a": 0, "b": 1, "c": 0}


def test_history_stays_finite_beyond_the_float32_range() -> None:
    block_ND = torch.tensor([[3e38, 0.0], [3e38, 0.0], [0.0, 1.0]])
    _, state, _ = run(block_ND, list("abc"))
    _, state, scores = run(block_ND, list("abc"), state)
    assert state.tensors["history"].isfinite().all()
    assert scores == {"a": 0, "b": 0, "c": 1}


@pytest.mark.parametrize(
    ("normalize", "expected"), [("weights", 1.0), ("count", 2 / 3), ("none", 2.0)]
)
def test_normalize_option_selects_the_divisor_of_the_sum(normalize: str, expected: float) -> None:
    block_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    rule = {"name": "foolsgold", "normalize": normalize}
    # The zero row gets full weight too, but adds nothing.
    share = expected * (2 / 3 if normalize == "weights" else 1)
    assert float(aggregate(block_ND, rule).sum()) == pytest.approx(share)


def test_stale_updates_are_not_added_to_the_history_again() -> None:
    block_ND, ids = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ["a", "b"]
    _, state, _ = run(block_ND, ids)
    stale = Rows.of(block_ND + 5, ids=ids, metadata={"fresh": [0, 1]})
    _, state, _ = FoolsGold().apply(stale, state, Context())
    assert state.by_id("history")["a"].tolist() == [1, 0]
    assert state.by_id("history")["b"].tolist() == [5, 7]
