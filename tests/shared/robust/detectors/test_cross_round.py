"""Cross-round consistency: reversed updates, repeated updates, and absences."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.detectors.cross_round import CrossRound


def play(rounds: list[dict[str, list[float]]]) -> list[dict[str, tuple[str, float]]]:
    state, seen = State(), []
    for uploads in rounds:
        rows = Rows.of(torch.tensor(list(uploads.values())), ids=list(uploads))
        verdicts, state = CrossRound().apply(rows, state, Context())
        seen.append({v.client: (v.decision, round(v.score, 4)) for v in verdicts})
    return seen


def test_reversed_client_is_rejected_until_it_reverses_back() -> None:
    seen = play([{"a": [1.0, 0.0]}, {"a": [-1.0, 0.1]}, {"a": [-1.0, 0.0]}, {"a": [1.0, 0.5]}])
    assert [step["a"][0] for step in seen] == ["accepted", "rejected", "rejected", "accepted"]
    assert seen[1]["a"][1] == -0.995 and seen[3]["a"][1] == 0.8944


def test_repeated_update_is_rejected_at_any_scale() -> None:
    seen = play([{"a": [0.3, 0.7]}, {"a": [0.6, 1.4]}])
    assert seen[1]["a"] == ("rejected", 1)


def test_clients_are_matched_by_id_across_absences() -> None:
    seen = play(
        [
            {"a": [1.0, 0.0], "b": [0.0, 1.0]},
            {"b": [1.0, 1.0], "c": [1.0, 0.0]},
            {"a": [-1.0, 0.0], "c": [1.0, 0.2]},
        ]
    )
    assert seen[1]["b"] == ("accepted", 0.7071) and seen[1]["c"] == ("accepted", 1)
    assert seen[2]["a"] == ("rejected", -1) and seen[2]["c"][0] == "accepted"


def test_zero_update_is_rejected_as_opposite() -> None:
    assert play([{"a": [1.0]}, {"a": [0.0]}])[1]["a"] == ("rejected", -1)


def test_lower_bound_above_the_upper_bound_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="lower"):
        detectors.build("cross_round", lower=0.5, upper=0.1)


def test_stale_update_in_the_pool_is_not_a_repetition() -> None:
    first = Rows.of(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), ids=["a", "b"])
    _, state = CrossRound().apply(first, State(), Context())
    moved = Rows.of(
        torch.tensor([[-1.0, 0.0], [1.0, 1.0]]), ids=["a", "b"], metadata={"fresh": [0, 1]}
    )
    verdicts, state = CrossRound(decision="evicted").apply(moved, state, Context())
    assert [verdict.decision for verdict in verdicts] == ["accepted", "evicted"]
    assert state.by_id("last")["a"].tolist() == [1, 0], "what it sent, not where the model went"


def test_client_whose_first_update_is_zero_is_compared_later() -> None:
    quiet = [[0.0, 0.0], [1.0, 0.2], [1.0, 0.1], [-1.0, 0.0]]
    seen = play([{"a": upload} for upload in quiet])
    assert [step["a"][0] for step in seen] == ["accepted", "accepted", "accepted", "rejected"]
