"""The robust-distance detector: rejections, evictions, and evidence that decays."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State, Verdict
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.detectors.robust_distance import RobustDistance

N, D = 12, 30


def honest(seed: int = 0, n: int = N) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return 1 + 0.3 * torch.randn(n, D, generator=draws)


def judge(
    block_ND: torch.Tensor,
    state: State | None = None,
    moved: list[float] | None = None,
    fresh: list[float] | None = None,
    detector: RobustDistance | None = None,
) -> tuple[dict[str, Verdict], State]:
    metadata = {"moved": moved or [1.0] * len(block_ND), "fresh": fresh or [1.0] * len(block_ND)}
    rows = Rows.of(block_ND, ids=[f"c{i:02d}" for i in range(len(block_ND))], metadata=metadata)
    verdicts, after = (detector or RobustDistance()).apply(rows, state or State(), Context())
    return {verdict.client: verdict for verdict in verdicts}, after


def moves(of_last: float) -> list[float]:
    return [1.0, 1.1] * ((N - 1) // 2) + [1.0, of_last]


def outlier(far: float = 20.0) -> torch.Tensor:
    block_ND = honest()
    block_ND[-1] += far
    return block_ND


def test_excess_matches_hand_computed_values() -> None:
    """Distances 1, 2, 3, 4, 10: median 3, deviations 2, 1, 0, 1, 7 with median 1; scale 6."""
    excess = RobustDistance().excess(torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0], dtype=torch.float64))
    assert excess.tolist() == pytest.approx([-1 / 3, -1 / 6, 0, 1 / 6, 7 / 6])
    tight = RobustDistance(mads=2).excess(torch.tensor([3.0, 3.0, 3.0, 4.0]))
    assert tight.tolist() == pytest.approx([0, 0, 0, 1 / 3])


def test_only_the_outlier_is_rejected() -> None:
    verdicts, _ = judge(outlier(), moved=moves(40.0))
    assert {v.decision for c, v in verdicts.items() if c != "c11"} == {"accepted"}
    assert verdicts["c11"].decision == "rejected"
    assert verdicts["c11"].score > verdicts["c11"].threshold == 1


def test_outlier_is_rejected_in_its_first_round_and_evicted_in_its_second() -> None:
    state, decisions = State(), []
    for _ in range(3):
        verdicts, state = judge(outlier(), state, moves(40.0))
        decisions.append(verdicts["c11"].decision)
    assert decisions == ["rejected", "evicted", "evicted"]  # until the client is forgotten
    verdicts, _ = judge(outlier(), RobustDistance().forget(state, {"c11"}), moves(40.0))
    assert (verdicts["c11"].decision, verdicts["c11"].evidence) == ("rejected", 0)


def test_evidence_of_a_single_bad_round_decays_to_zero() -> None:
    verdicts, state = judge(outlier(), None, moves(40.0))
    assert verdicts["c11"].evidence == pytest.approx(1.0)
    for _ in range(3):
        verdicts, state = judge(honest(), state)
    assert verdicts["c11"].evidence == 0
    assert "c11" not in state.ids["evidence"]


@pytest.mark.parametrize(("apart", "last"), [(True, 0.9), (False, 9.0)])
def test_client_that_is_only_distant_or_only_moving_is_accepted(apart: bool, last: float) -> None:
    block_ND = outlier() if apart else honest()
    if not apart:
        block_ND[-1] = block_ND[:-1].mean(0)
    state = State()
    for _ in range(50):
        verdicts, state = judge(block_ND, state, moves(last))
        assert verdicts["c11"].decision == "accepted"
    assert verdicts["c11"].evidence == 0


def test_persistent_outlier_below_the_rejection_limit_is_evicted() -> None:
    block_ND = outlier(0.35)
    state, decisions = State(), list[str]()
    while "evicted" not in decisions and len(decisions) < 39:
        verdicts, state = judge(block_ND, state, moves(3.0))
        assert all(v.decision == "accepted" for c, v in verdicts.items() if c != "c11")
        decisions.append(verdicts["c11"].decision)
    assert set(decisions[:-1]) == {"accepted"} and decisions[-1] == "evicted"


def test_absences_and_stale_rows_leave_evidence_unchanged() -> None:
    _, state = judge(outlier(), None, moves(40.0))
    _, state = judge(honest(n=N - 1), state)
    assert state.by_id("evidence")["c11"].item() == pytest.approx(1.0)
    verdicts, state = judge(outlier(), state, moves(40.0))  # returning clients move further
    assert verdicts["c11"].evidence == pytest.approx(1.0)
    old = [1.0] * (N - 1) + [0.0]
    verdicts, state = judge(outlier(), state, moves(40.0), fresh=old)
    assert verdicts["c11"].evidence == pytest.approx(1.0)
    assert verdicts["c11"].decision == "rejected"


def test_distance_replaces_an_unknown_movement() -> None:
    state, decision = State(), ""
    for _ in range(2):
        verdicts, state = RobustDistance().apply(Rows.of(outlier()), state, Context())
        decision = verdicts[-1].decision
    assert decision == "evicted"


def test_non_finite_row_is_rejected_and_then_evicted() -> None:
    block_ND = honest()
    block_ND[3, 2] = float("nan")
    state, decisions = State(), []
    for _ in range(2):
        verdicts, state = judge(block_ND, state)
        decisions.append(verdicts["c03"].decision)
    assert decisions == ["rejected", "evicted"]


def test_identical_rows_and_a_single_row_are_accepted() -> None:
    for block_ND in (torch.ones(5, 3), torch.ones(1, 3), torch.zeros(4, 2)):
        verdicts, _ = judge(block_ND, moved=[0.0] * len(block_ND))
        assert {verdict.decision for verdict in verdicts.values()} == {"accepted"}


def test_slight_deviation_from_identical_rows_is_rejected() -> None:
    block_ND = torch.ones(5, 3)
    block_ND[2] = 1.001
    verdicts, _ = judge(block_ND, moved=[1.0, 1.0, 9.0, 1.0, 1.0])
    assert [v.decision for v in verdicts.values()].count("rejected") == 1


@given(seed=st.integers(0, 1000), shift=st.floats(-1e3, 1e3), scale=st.floats(0.01, 100))
def test_scores_are_invariant_to_shift_and_scale(seed: int, shift: float, scale: float) -> None:
    block_ND = honest(seed).double()
    first, _ = judge(block_ND)
    other, _ = judge(scale * block_ND + shift)
    for client, verdict in first.items():
        assert verdict.score == pytest.approx(other[client].score, abs=1e-6)


@given(far=st.sampled_from([1e2, 1e6, 1e15]), hostile=st.integers(1, 5))
def test_a_minority_cannot_get_an_honest_client_rejected(far: float, hostile: int) -> None:
    block_ND = honest().double()
    block_ND[-hostile:] += far
    verdicts, _ = judge(block_ND, moved=[1.0] * (N - hostile) + [far] * hostile)
    decisions = [verdict.decision for verdict in verdicts.values()]
    assert decisions[:-hostile] == ["accepted"] * (N - hostile)
    assert decisions[-hostile:] == ["rejected"] * hostile


def test_ratio_of_1_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="ratio"):
        detectors.build("robust_distance", ratio=1)
