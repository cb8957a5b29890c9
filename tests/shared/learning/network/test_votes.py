"""Votes of models on clients' own test samples, compared with a loop over samples."""

import torch
from torch.nn import functional

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.votes import vote_figures
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.network.votes import ballots, vote
from rampart_fl.shared.learning.training.cohort import Cohort
from rampart_fl.shared.learning.training.learner import Learner

EXPERIMENT = Experiment.from_tables(
    {
        "name": "votes",
        "seed": 2,
        "data": {"dataset": "digits", "clients": 30, "partition": "dirichlet"},
        "model": {"name": "mlp", "hidden": [6]},
    }
)
LEARNER = Learner.of(EXPERIMENT)
VOTERS = [
    LEARNER.initial_model()
    + torch.randn(LEARNER.spec.dim, generator=torch.Generator().manual_seed(k))
    for k in range(5)
]


def test_vote_counts_equal_a_loop_over_samples() -> None:
    clients = [client_data(EXPERIMENT.data, k, 2) for k in (0, 3, 7)]
    assert len({len(client.y_test) for client in clients}) > 1
    result = vote(LEARNER, Cohort.of(clients), VOTERS)
    assert set(result) == {"test_samples", "correct_vote", "certified_01", "certified_02"}
    for k, client in enumerate(clients):
        counts = dict.fromkeys(("correct_vote", "certified_01", "certified_02"), 0)
        for x, y in zip(client.x_test, client.y_test.tolist(), strict=True):
            votes = [0] * 10
            for model_D in VOTERS:
                votes[int(LEARNER.network.logits(model_D[None], x[None, None])[0, 0].argmax())] += 1
            winner = votes.index(max(votes))
            others = [n + (z < winner) for z, n in enumerate(votes) if z != winner]
            radius = (votes[winner] - max(others)) // 2
            counts["correct_vote"] += winner == y
            counts["certified_01"] += winner == y and radius >= 1
            counts["certified_02"] += winner == y and radius >= 2
        assert {name: float(result[name][k]) for name in counts} == counts
        assert float(result["test_samples"][k]) == len(client.y_test)


def test_backdoor_success_is_measured_on_the_vote() -> None:
    tables = {**EXPERIMENT.tables(), "evaluation": {"trigger": {"name": "badnets", "target": 3}}}
    learner, client = Learner.of(Experiment.from_tables(tables)), client_data(EXPERIMENT.data, 4, 2)
    result = vote(learner, Cohort.of([client, client]), VOTERS)
    assert learner.trigger is not None
    shown = learner.trigger.with_trigger(client.x_test)
    votes = sum(
        functional.one_hot(LEARNER.network.logits(v[None], shown[None])[0].argmax(-1), 10)
        for v in VOTERS
    )
    fooled = [int(n.argmax() == 3) for n, y in zip(votes, client.y_test, strict=True) if y != 3]
    assert result["fooled_vote"].tolist() == 2 * [sum(fooled)]
    assert result["triggered_samples"].tolist() == 2 * [len(fooled)]
    metrics = {"a": {name: float(column[0]) for name, column in result.items()}}
    assert vote_figures(metrics, ["a"])["attack_success_vote"] == sum(fooled) / len(fooled)


def test_single_voter_decides_alone_and_certifies_nothing() -> None:
    client = client_data(EXPERIMENT.data, 0, 2)
    votes = vote(LEARNER, Cohort.of([client]), VOTERS[:1])
    assert set(votes) == {"test_samples", "correct_vote"}
    labels = LEARNER.network.logits(VOTERS[0][None], client.x_test[None])[0].argmax(-1)
    assert float(votes["correct_vote"][0]) == int((labels == client.y_test).sum())
    ballots_NC = ballots(LEARNER, client.x_test, VOTERS[:1])
    assert torch.equal(ballots_NC, functional.one_hot(labels, 10))
