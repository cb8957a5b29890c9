"""The final figures of a run, compared with hand calculation."""

from typing import ClassVar

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import accuracies, accuracy
from rampart_fl.shared.figures.final import costs, decisions, final_figures
from rampart_fl.shared.figures.votes import vote_figures
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord

DATA = {"dataset": "digits", "clients": 4}
EXPERIMENT = Experiment.from_tables(
    {
        "name": "four",
        "data": DATA,
        "model": "cnn",
        "attackers": [{"count": 1, "attack": "sign_flip"}],
        "placement": "last",
    }
)


def measured(customized: float, personalized: float, samples: float = 10) -> dict[str, float]:
    return {
        "test_samples": samples,
        "correct_customized": customized,
        "correct_personalized": personalized,
    }


def test_final_figures_match_hand_calculation() -> None:
    """Client 1 is honest and evicted after round 0; it still counts with its last measurement."""
    rounds = [
        {f"client-0{k}": measured(1, 2) for k in range(4)},
        {
            "client-00": measured(9, 8),
            "client-02": measured(15, 15, 30),
            "client-03": measured(0, 0),
        },
    ]
    figures = final_figures(EXPERIMENT, rounds, {"client-01", "client-03"})
    assert figures == {
        "accuracy": pytest.approx(25 / 50),
        "accuracy_customized": pytest.approx(25 / 50),
        "accuracy_local": None,
        "accuracy_personalized": pytest.approx(25 / 50),
        "rounds_to_accuracy": {
            **dict.fromkeys(("0.6", "0.7", "0.8", "0.9", "0.95")),
            "0.5": 2,
        },
        "attack_success": None,
        "dacc": pytest.approx(3 / 4),
        "fpr": pytest.approx(1 / 3),
        "fnr": 0,
        "evicted": ["client-01", "client-03"],
    }


@pytest.mark.parametrize(
    "claim",
    [
        [measured(1e15, 1e15, 1)],
        [measured(10, 10, -199)],
        [measured(-5, -5)],
        [measured(10, 10), {"test_samples": 1.0}],
    ],
)
def test_impossible_counts_of_one_client_do_not_count(claim: list[dict[str, float]]) -> None:
    """The counts of older versions, or of two reports of which each is possible."""
    rounds = [{"client-00": one, "client-01": measured(4, 5)} for one in claim]
    figures = final_figures(EXPERIMENT, rounds, set())
    assert (figures["accuracy_customized"], figures["accuracy"]) == (0.4, 0.5)


def test_impossible_votes_of_one_client_do_not_count() -> None:
    votes = {"test_samples": 4.0, "correct_vote": 3.0, "certified_01": 2.0}
    wrong = [{"correct_vote": 3.0}, {**votes, "certified_01": 1e15}, {**votes, "correct_vote": -9}]
    for one in wrong:
        assert vote_figures({"a": votes, "b": one}, ["a", "b"]) == {"certified": [0.75, 0.5]}


def test_undefined_figures_are_none_without_attackers_or_measurements() -> None:
    benign = EXPERIMENT.model_copy(update={"attackers": []})
    figures = final_figures(benign, [], set())
    assert figures["fnr"] is figures["dacc"] is figures["accuracy"] is None
    assert figures["fpr"] == 0


def test_final_accuracy_uses_the_last_round_the_last_five_or_the_best_round() -> None:
    hits = [9, 2, 4, 6, 8, 1]
    rounds = [{"client-00": measured(hit, 10 - hit)} for hit in hits]
    last, five, best = (
        final_figures(EXPERIMENT, rounds, set(), accuracy_of=which)
        for which in ("last", "mean5", "best")
    )
    assert (last["accuracy_customized"], last["accuracy"]) == (0.1, 0.9)
    assert five["accuracy_customized"] == pytest.approx(21 / 50)
    assert (five["accuracy_local"], five["accuracy"]) == (None, pytest.approx(29 / 50))
    assert (best["accuracy_customized"], best["accuracy"]) == (0.9, 0.9)


def test_rounds_to_accuracy_end_when_the_better_model_first_reaches_it() -> None:
    rounds = [{"client-00": measured(*hits)} for hits in [(1, 2), (7, 1), (2, 9), (1, 1)]]
    metrics = final_figures(EXPERIMENT, rounds, set())["rounds_to_accuracy"]
    assert metrics == {"0.5": 2, "0.6": 2, "0.7": 2, "0.8": 3, "0.9": 3, "0.95": None}
    for which in ("mean5", "best"):
        same = final_figures(EXPERIMENT, rounds, set(), accuracy_of=which)
        assert same["rounds_to_accuracy"] == metrics
    ended = {"client-00": measured(10, 10)}
    end = final_figures(EXPERIMENT, rounds, set(), accuracy_of="end", evaluations=ended)
    assert (end["accuracy"], end["rounds_to_accuracy"]) == (1.0, metrics)


def test_accuracy_curve_keeps_the_last_values_of_unselected_clients() -> None:
    rounds = [{"client-00": measured(10, 0)}, {"client-01": measured(0, 0)}]
    assert [one["customized"] for one in accuracies(EXPERIMENT, rounds)] == [1.0, 0.5]


def test_costs_average_bytes_per_client_and_seconds_per_published_round() -> None:
    records = [
        RoundRecord(
            round=0,
            status="published",
            timings={"train": 1.0, "rule": 0.5},
            bytes_down={"a": 10, "b": 20},
            bytes_up={"a": 4, "b": 4},
        ),
        RoundRecord(round=1, status="failed"),
        RoundRecord(
            round=2,
            status="published",
            timings={"train": 3.0},
            bytes_down={"a": 30},
            bytes_up={"a": 10},
        ),
    ]
    assert costs(records) == {
        "bytes_per_client": {"down": 20, "up": 6},
        "seconds_per_round": {"train": 2.0, "rule": 0.25},
    }
    assert costs([]) == {"bytes_per_client": {"down": None, "up": None}, "seconds_per_round": {}}


class CountingName(str):
    """A client's name that counts how often it is compared with other names."""

    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountingName.compared += 1
        return str.__eq__(self, str(other))

    __hash__ = str.__hash__


def test_time_to_count_decisions_grows_linearly_with_the_number_of_clients() -> None:
    many = Experiment.from_tables({**EXPERIMENT.tables(), "data": {**DATA, "clients": 300}})
    names = [CountingName(name) for name in many.client_names]
    verdicts = [VerdictRecord.model_construct(client=c, decision="accepted") for c in names]
    record = RoundRecord.model_construct(verdicts=verdicts, quarantined=names)
    CountingName.compared = 0
    assert decisions(many, [record])["decisions"]["honest"] == {"accepted": 299, "away": 299}
    assert CountingName.compared <= 10 * len(names)


def test_decisions_are_counted_per_client_and_round() -> None:
    def verdict(client: str, decision: str) -> VerdictRecord:
        fields = {"client": client, "decision": decision, "reason": "", "detector": "test"}
        return VerdictRecord.model_validate({**fields, "score": 0.0, "threshold": 0.0})

    names = EXPERIMENT.client_names
    first = [verdict(names[0], "accepted"), verdict(names[1], "quarantined")]
    second = [verdict(names[0], "accepted"), verdict(names[3], "evicted")]
    records = [
        RoundRecord(round=0, status="published", verdicts=first),
        RoundRecord(round=1, status="published", verdicts=second, quarantined=[names[1]]),
    ]
    assert decisions(EXPERIMENT, records) == {
        "decisions": {
            "honest": {"accepted": 2, "quarantined": 1, "away": 1},
            "hostile": {"evicted": 1, "away": 0},
        },
        "silenced": {"honest": 0.5, "hostile": 1.0},
    }
    assert decisions(EXPERIMENT, [])["silenced"] == {"honest": None, "hostile": None}


def test_accuracy_pools_samples_not_clients() -> None:
    metrics = {"a": measured(1, 0, 1), "b": measured(0, 0, 9)}
    assert accuracy(metrics, ["a", "b"], "customized") == pytest.approx(0.1)


def test_attack_success_uses_the_model_with_the_better_accuracy() -> None:
    """Only honest clients count: no figure includes an attacker's own count of fooled samples."""
    fooled = {"triggered_samples": 8.0, "fooled_customized": 2.0, "fooled_personalized": 4.0}
    rounds = [{f"client-0{k}": {**measured(1, 2), **fooled} for k in range(3)}]
    rounds[0]["client-03"] = {**measured(9, 9), **fooled, "fooled_personalized": 8.0}
    figures = final_figures(EXPERIMENT, rounds, set())
    assert figures["attack_success"] == figures["attack_success_personalized"] == 0.5
    assert figures["attack_success_customized"] == 0.25
    assert "attack_success_local" not in figures, "nobody measured it"
    customized = [{"client-00": {**measured(3, 2), **fooled}}]
    assert final_figures(EXPERIMENT, customized, set())["attack_success"] == pytest.approx(0.25)


def test_estimation_tasks_report_the_squared_error() -> None:
    def estimated(customized: float, personalized: float) -> dict[str, float]:
        squares = {"error_customized": customized, "error_personalized": personalized}
        return {"test_samples": 1, **squares}

    rounds = [{f"client-0{k}": estimated(9, 4 * k) for k in range(4)}]
    figures = final_figures(EXPERIMENT, rounds, set())
    assert figures["error"] == figures["error_personalized"] == pytest.approx((0 + 4 + 8) / 3)
    assert figures["error_customized"] == 9 and figures["error_local"] is None
    assert figures["accuracy"] is None
    assert "error" not in final_figures(EXPERIMENT, [], set())


def test_largest_gap_uses_only_the_newest_values_of_honest_clients() -> None:
    gaps = [(3.0, 0.5, 0.25, 9.0), (0.5, 0.75, 0.25, 7.0)]
    rounds = [{f"client-0{k}": {"loss_gap": gap} for k, gap in enumerate(own)} for own in gaps]
    assert final_figures(EXPERIMENT, rounds, ())["largest_gap"] == 0.75
    assert "largest_gap" not in final_figures(EXPERIMENT, [{}], ())
