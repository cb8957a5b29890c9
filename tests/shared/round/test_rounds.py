"""Rounds: claims and rows become a decision, and probes become models; worked out by hand.

Legend: D parameters, A = D and running statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.figures.decision_record import DecisionRecord
from rampart_fl.shared.learning.network.heads import head_of
from rampart_fl.shared.learning.network.vector import build_module, spec_of
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.round.rounds import RoundDecision, Rounds

PLAIN = ModelSpec.of([("w", (2,))])
NORMED = ModelSpec.of([("w", (2,)), ("~norm.running_var", (1,))])
THREE = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [1.0, 1.0]}
CLAIMS = {"a": Claim(1, {}), "b": Claim(1, {}), "c": Claim(2, {})}
STANDING = Standing(3, 3)
FEDCAP = {"name": "fedcap", "alpha": 0, "phi": 0.5}


def make(spec: ModelSpec = PLAIN, **server: object) -> Rounds:
    tables = {"rule": "weighted_mean", "detectors": [], "customizer": FEDCAP, **server}
    experiment = Experiment.from_tables(
        {"name": "hand", "data": {"dataset": "digits"}, "model": "cnn", "server": tables}
    )
    return Rounds.of(experiment, spec, torch.device("cpu"))


def fill(rounds: Rounds, updates: Mapping[str, Sequence[float]], reference: float = 0.0) -> Pool:
    """A pool of uploads of clients that all started from the reference model."""
    pool = rounds.pool(torch.full((rounds.spec.dim,), reference), updates)
    for client, numbers in updates.items():
        pool.row(client).copy_(torch.tensor(numbers))
        pool.admit(client)
    return pool


def never() -> dict[str, Tensor]:
    raise AssertionError("only a customizer that continues asks for the last round's models")


def decide(
    rounds: Rounds, pool: Pool, claims: Mapping[str, Claim], **options: Any
) -> RoundDecision:
    options = {"state": State(), "standing": STANDING, "models": never, **options}
    return rounds.decide(3, pool, claims, **options)


def models(decision: RoundDecision) -> dict[str, list[float]]:
    made = decision.outcome.customization.models
    assert made is not None
    return dict(zip(made.names, made.block(made.names).tolist(), strict=True))


def test_decision_matches_a_calculation_by_hand() -> None:
    """Weights 1, 1, 2; each client's model is half its own row and a quarter of each other row."""
    rounds, steps = make(), list[str]()
    pool = fill(rounds, THREE)
    decision = decide(rounds, pool, CLAIMS, ended=steps.append)
    assert decision.outcome.global_D.tolist() == [0.75, 0.75]
    assert models(decision) == {"a": [0.75, 0.5], "b": [0.5, 0.75], "c": [0.75, 0.75]}
    assert decision.rows.block_ND is pool.block.tensor
    assert steps == ["calibrate", "screen", "aggregate", "audit", "customize"]


@pytest.mark.parametrize(("policy", "known"), [("sync", {"a", "b"}), ("buffered", set[str]())])
def test_stages_know_the_selected_clients_unless_uploads_are_buffered(
    policy: str, known: set[str]
) -> None:
    rounds = make()
    experiment = rounds.experiment.model_copy(update={"policy": policy})
    context = replace(rounds, experiment=experiment).context(
        3, torch.zeros(2), STANDING, ["a", "b"]
    )
    assert context.selected == known


def test_staleness_lowers_weights_and_sample_claims_are_capped() -> None:
    claims = {"a": Claim(4, {}, staleness=3), "b": Claim(900, {}), "c": Claim(2, {})}
    rounds = make(sample_cap=4)
    record = DecisionRecord.of(decide(rounds, fill(rounds, THREE), claims))
    assert record.weights == {"a": 0.25, "b": 0.5, "c": 0.25}, "of weights 2, 4 and 2"


def test_decision_record_states_verdicts_weights_and_mixing() -> None:
    rounds = make(detectors=[{"name": "norm_bound", "threshold": 1.2}])
    standing = Standing(9, 9, quarantined=frozenset({"z", "y"}), mode="reject")
    decision = decide(rounds, fill(rounds, THREE), CLAIMS, standing=standing)
    record = DecisionRecord.of(decision)
    assert [(v.client, v.decision) for v in record.verdicts] == [
        ("a", "accepted"),
        ("b", "accepted"),
        ("c", "rejected"),
    ]
    assert record.verdicts[2].asked == "evicted"
    assert decision.about("rejected").keys() == {"c"} and not decision.about("evicted")
    assert record.mixing == {"a": {"a": 0.5, "b": 0.5}, "b": {"a": 0.5, "b": 0.5}}
    assert record.weights == {"a": 0.5, "b": 0.5}
    assert record.norms == pytest.approx({"a": 1, "b": 1, "c": 2**0.5})
    assert record.assignment == {}
    assert (record.quarantined, record.mode) == (["y", "z"], "reject")
    whole = RoundRecord(round=3, status="published", **vars(record))
    assert whole.verdicts == record.verdicts and whole.mode == "reject"


def test_experiments_eviction_mode_applies_unless_an_operator_sets_one() -> None:
    rounds = make(eviction={"mode": "observe"})
    assert decide(rounds, fill(rounds, THREE), CLAIMS).mode == "observe"


def test_a_diverged_upload_is_rejected_and_the_others_count() -> None:
    rounds = make()
    uploads = {**THREE, "b": [float("nan"), 1.0]}
    decision = decide(rounds, fill(rounds, uploads), CLAIMS)
    assert decision.about("rejected")["b"].detector == "finite"
    torch.testing.assert_close(decision.outcome.global_D, torch.tensor([1.0, 2 / 3]))
    assert decision.neighbours is not None and decision.neighbours.rows.ids == ("a", "c")


def test_too_few_rows_fail_the_round() -> None:
    rounds = make(rule="krum", f=1)
    with pytest.raises(PreconditionError, match="n=3, f=1"):
        decide(rounds, fill(rounds, THREE), CLAIMS)


def test_momentum_continues_from_the_state_and_restarts_from_an_empty_one() -> None:
    rounds = make(momentum=0.5)
    first = decide(rounds, fill(rounds, THREE), CLAIMS)
    again = decide(rounds, fill(rounds, THREE), CLAIMS)
    later = decide(rounds, fill(rounds, THREE), CLAIMS, state=first.outcome.state)
    assert again.outcome.global_D.tolist() == [0.75, 0.75]
    assert later.outcome.global_D.tolist() == [0.75 * 1.5] * 2


def test_last_rounds_models_are_loaded_only_for_customizers_that_need_them() -> None:
    rounds = make(customizer={"name": "clustered", "clusters": 2})
    held = {"cluster:0": torch.zeros(2), "cluster:1": torch.ones(2)}
    loads = list[str]()
    decide(
        rounds,
        fill(rounds, THREE),
        CLAIMS,
        models=lambda: loads.append("models") or held,
    )
    assert loads == ["models"]


def test_a_newcomer_gets_the_mean_of_the_accepted_rows() -> None:
    """With alpha = 0, all rows count equally, whatever their weights, relative to the reference."""
    rounds = make()
    neighbours = decide(rounds, fill(rounds, THREE, reference=10.0), CLAIMS).neighbours
    made_D = rounds.newcomer(4, torch.tensor([5.0, 0.0]), neighbours, torch.empty(0))
    assert made_D is not None
    torch.testing.assert_close(made_D, torch.full((2,), 10 + 2 / 3))


def test_newcomers_model_follows_the_most_similar_row() -> None:
    """With a large alpha, the row in the probe's direction gets all the weight."""
    rounds = make(customizer={**FEDCAP, "alpha": 1000})
    neighbours = decide(rounds, fill(rounds, THREE), CLAIMS).neighbours
    made_D = rounds.newcomer(4, torch.tensor([0.0, 7.0]), neighbours, torch.empty(0))
    assert made_D is not None and made_D.tolist() == [0, 1]


def test_similarity_uses_raw_uploads_if_calibration_is_off() -> None:
    rounds = make(customizer={**FEDCAP, "alpha": 1000}, calibrate=False)
    pool = rounds.pool(torch.zeros(2), ["a", "b"])
    for client, upload, start in [("a", [1.0, 0.0], [0.0, 8.0]), ("b", [0.0, 1.0], [8.0, 0.0])]:
        pool.row(client).copy_(torch.tensor(upload))
        pool.admit(client, None, (torch.tensor(start), torch.zeros(2)))
    claims = {client: CLAIMS[client] for client in "ab"}
    neighbours = decide(rounds, pool, claims).neighbours
    made_D = rounds.newcomer(4, torch.tensor([3.0, 0.0]), neighbours, torch.empty(0))
    assert made_D is not None and made_D.tolist() == [1, 8], "a's model, by a's upload"


def test_reloaded_neighbours_give_the_same_model() -> None:
    """A restarted worker knows neither the weights nor the staleness that the round used."""
    rounds = make(detectors=[{"name": "norm_bound", "threshold": 1.2}])
    pool = fill(rounds, THREE)
    kept = decide(rounds, pool, {**CLAIMS, "a": Claim(7, {"loss_gap": 3.0}, 2)}).neighbours
    again = rounds.neighbours(pool, {client: Claim(1, {}) for client in "ab"})
    assert kept is not None and again is not None
    assert kept.rows.ids == again.rows.ids == ("a", "b")
    for neighbours in (kept.rows, again.rows, kept.similar):
        assert (
            neighbours.weights_M is None and not neighbours.metadata and neighbours.traces is None
        )
    probe_D = torch.tensor([2.0, 1.0])
    one_D, other_D = (rounds.newcomer(4, probe_D, held, torch.empty(0)) for held in (kept, again))
    assert one_D is not None and other_D is not None and torch.equal(one_D, other_D)


@pytest.mark.parametrize("probe", [None, [float("nan"), 0.0], [float("inf"), 0.0]])
def test_diverged_probe_gives_no_model(probe: list[float] | None) -> None:
    rounds = make()
    neighbours = decide(rounds, fill(rounds, THREE), CLAIMS).neighbours
    probe_D = None if probe is None else torch.tensor(probe)
    assert rounds.newcomer(4, probe_D, neighbours, torch.empty(0)) is None


def test_without_accepted_rows_there_are_no_neighbours() -> None:
    rounds = make(detectors=[{"name": "norm_bound", "threshold": 0.1}])
    decision = decide(rounds, fill(rounds, THREE), CLAIMS)
    assert decision.neighbours is None
    assert decision.outcome.global_D.tolist() == [0, 0]
    assert rounds.newcomer(4, torch.ones(2), None, torch.empty(0)) is None


@pytest.mark.parametrize("calibrate", [True, False])
def test_running_statistics_are_excluded_from_rows_but_included_in_models(calibrate: bool) -> None:
    rounds = make(NORMED, calibrate=calibrate)
    uploads = {client: [*numbers, 100.0 + k] for k, (client, numbers) in enumerate(THREE.items())}
    decision = decide(rounds, fill(rounds, uploads, reference=1.0), CLAIMS)
    assert decision.outcome.global_D.tolist() == [1.75, 1.75, 102]
    assert DecisionRecord.of(decision).norms == pytest.approx({"a": 1, "b": 1, "c": 2**0.5})
    neighbours = decision.neighbours
    assert neighbours is not None
    assert neighbours.rows.dim == neighbours.similar.dim == 2
    made_A = rounds.newcomer(4, torch.tensor([1.0, 0.0, 9.0]), neighbours, torch.tensor([5.0]))
    assert made_A is not None
    torch.testing.assert_close(made_A, torch.tensor([1 + 2 / 3, 1 + 2 / 3, 5.0]))


def test_newcomers_are_probed_only_if_other_clients_have_their_own_models() -> None:
    rounds, plain = make(), make(customizer={"name": "global_model"})
    assert rounds.to_probe(["a", "d"], True, {"a"}.__contains__) == ["d"]
    assert rounds.to_probe(["a", "d"], False, {"a"}.__contains__) == []
    assert plain.to_probe(["a", "d"], True, {"a"}.__contains__) == []


@pytest.mark.parametrize("model", [{"name": "mlp", "hidden": [8] * 5}, "mlp", "cnn", "logistic"])
def test_the_last_layer_is_the_models_head_even_if_its_name_is_not_the_last(model: Any) -> None:
    tables = {"name": "hand", "data": {"dataset": "digits"}, "model": model}
    fedcap = {"name": "fedcap", "similarity": "last_layer"}
    experiment = Experiment.from_tables({**tables, "server": {"customizer": fedcap}})
    module = build_module(experiment)
    rounds = Rounds.of(experiment, spec_of(module), torch.device("cpu"))
    context = rounds.context(0, torch.zeros(rounds.spec.dim))
    inside_D = torch.zeros(rounds.spec.dim, dtype=torch.bool)
    inside_D[context.last_layer()] = True
    assert torch.equal(inside_D, head_of(module, rounds.spec))
