"""A verdict states the evidence, its limit, its unit and the cohort in one sentence."""

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.detectors.robust_distance import RobustDistance
from rampart_fl.shared.robust.evidence.reasons import trial_reason
from rampart_fl.shared.robust.evidence.trials import TrialRecord

ODDS = "false-eviction level 1 in 1,000"
ANSWER = (-3.65, 0.63, 2.52)
MEASURED = (
    "answer to its own challenge -3.65 is below 0.63 standard deviations (median of others 2.52)"
)


@pytest.mark.parametrize(
    ("waited", "decision", "wealth", "expected"),
    [
        (0, "rejected", 1e4, f"{MEASURED}; evidence 8.52 of 9.47"),
        (
            1,
            "evicted",
            1e5,
            f"evidence 10.8 exceeds 9.47 after 20 rounds on trial ({ODDS}); {MEASURED}",
        ),
        (
            3,
            "rejected",
            1e5,
            f"evidence 10.8 exceeds 9.47 after 20 rounds on trial ({ODDS}); waits for evidence on "
            f"the other senders; {MEASURED}",
        ),
        (
            3,
            "evicted",
            1e4,
            f"evidence 8.52 of 9.47, which it exceeded earlier, after 20 rounds on trial ({ODDS}); "
            f"{MEASURED}",
        ),
    ],
)
def test_verdict_on_a_client_on_trial_states_evidence_and_limit(
    waited: int, decision: str, wealth: float, expected: str
) -> None:
    one = TrialRecord(limit=9.47, wealth=(wealth,), rounds=20, trial=5, waited=waited)
    assert trial_reason(decision, one, ANSWER, copied=False, odds=ODDS) == expected


def test_eviction_by_distance_says_that_the_evidence_exceeds_its_limit() -> None:
    detector, state = RobustDistance(), State()
    reasons = []
    for round_ in range(6):
        far_D = torch.full((20,), 50.0 * (-1) ** round_)
        near_ND = torch.randn(9, 20, generator=torch.Generator().manual_seed(round_))
        rows = Rows.of(torch.cat([near_ND, far_D[None]]))
        verdicts, state = detector.apply(rows, state, Context(round=round_))
        reasons.append((verdicts[-1].decision, verdicts[-1].reason))
    evicted = [reason for decision, reason in reasons if decision == "evicted"]
    assert evicted
    assert all(f" exceeds {detector.limit:g}" in reason for reason in evicted)
    others = [reason for decision, reason in reasons if decision != "evicted"]
    assert others
    assert all(f" of {detector.limit:g}" in reason for reason in others)
