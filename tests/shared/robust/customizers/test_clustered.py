"""Clustered models: each cluster averages its own clients and keeps its name across rounds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.customizers.clustered import Clustered, match_clusters
from rampart_fl.shared.simulation import simulate
from rampart_fl.shared.validation import validate

REFERENCE_D = torch.tensor([5.0, 7.0])
ROWS = {"a": [1.0, 0.1], "b": [-2.0, 0.1], "c": [2.0, -0.1], "d": [-1.0, 0.0], "e": [3.0, 0.0]}


def run(
    rows: dict[str, list[float]],
    last: tuple[Customization, State] | None = None,
    weights: list[float] | None = None,
    **parameters: object,
) -> tuple[Customization, State]:
    view = Rows.of(torch.tensor(list(rows.values())), ids=list(rows), weights=weights)
    customizer = Clustered.model_validate(parameters)
    made = {} if last is None else models(last[0])
    context = Context(reference_D=REFERENCE_D, models=made)
    return customizer.apply(view, view, State() if last is None else last[1], context)


def models(customization: Customization) -> dict[str, Tensor]:
    assert customization.models is not None
    return {name: customization.models.model(name) for name in customization.models.names}


def model(customization: Customization, client: str) -> Tensor:
    assert customization.models is not None
    return customization.models.model(customization.names_for(client)[0])


def test_opposite_update_directions_form_two_clusters() -> None:
    result, _ = run(ROWS, weights=[1.0, 3.0, 1.0, 1.0, 2.0])
    assert result.assignment == {
        client: ("cluster:0" if client in "ace" else "cluster:1",) for client in "abcde"
    }
    # Trusted weights count within a cluster: (1·1 + 2·1 + 3·2) / 4 and (-2·3 - 1·1) / 4.
    torch.testing.assert_close(model(result, "a"), REFERENCE_D + torch.tensor([2.25, 0.0]))
    torch.testing.assert_close(model(result, "b"), REFERENCE_D + torch.tensor([-1.75, 0.075]))
    assert result.names_for("newcomer") == ()


def test_one_cluster_applies_the_rule_to_all_clients() -> None:
    result, _ = run(ROWS, clusters=1, rule=[{"name": "median"}])
    middle_D = torch.tensor(list(ROWS.values())).median(dim=0).values
    torch.testing.assert_close(model(result, "d"), REFERENCE_D + middle_D)


def test_as_many_clusters_as_clients_gives_each_client_its_own_model() -> None:
    result, _ = run(ROWS, clusters=5)
    for client, row in ROWS.items():
        torch.testing.assert_close(model(result, client), REFERENCE_D + torch.tensor(row))


def test_clusters_keep_their_names_and_absent_clients_their_cluster() -> None:
    # Without a, an order by client id would put b's cluster first.
    later, state = run({"b": [-1.0, 0.0], "c": [1.0, 0.0], "d": [-2.0, 0.0]}, run(ROWS))
    assert {c: names[0] for c, names in later.assignment.items()} == {
        "a": "cluster:0",
        "b": "cluster:1",
        "c": "cluster:0",
        "d": "cluster:1",
        "e": "cluster:0",
    }
    torch.testing.assert_close(model(later, "a"), REFERENCE_D + torch.tensor([1.0, 0.0]))
    # A cluster without participants keeps its model.
    alone, _ = run({"b": [-3.0, 0.0]}, (later, state))
    torch.testing.assert_close(model(alone, "b"), REFERENCE_D + torch.tensor([-3.0, 0.0]))
    torch.testing.assert_close(model(alone, "e"), REFERENCE_D + torch.tensor([1.0, 0.0]))


def test_client_whose_update_turns_changes_its_cluster() -> None:
    turned = {**ROWS, "e": [-3.0, 0.0]}
    result, _ = run(turned, run(ROWS))
    assert result.names_for("e") == ("cluster:1",) and result.names_for("a") == ("cluster:0",)


def test_a_cluster_too_small_for_its_rule_keeps_its_model() -> None:
    strict = {"rule": [{"name": "trimmed_mean", "f": 1}]}
    result, _ = run(ROWS, **strict)
    torch.testing.assert_close(model(result, "a"), REFERENCE_D + torch.tensor([2.0, 0.0]))
    torch.testing.assert_close(model(result, "b"), REFERENCE_D)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=9), st.data())
def test_cluster_names_follow_the_largest_overlap(new: list[int], data: st.DataObject) -> None:
    held = data.draw(st.lists(st.none() | st.integers(0, 2), min_size=len(new), max_size=len(new)))
    place = match_clusters(torch.tensor(new), held, 3)
    assert sorted(place) == [0, 1, 2]
    counts = {
        (n, old): sum((n, old) == pair for pair in zip(new, held, strict=True))
        for n in range(3)
        for old in range(3)
    }
    best = max(counts.values())
    assert best in {counts[n, old] for n, old in enumerate(place)}


def test_uncalibrated_uploads_are_rejected() -> None:
    server = {"customizer": "clustered", "calibrate": False}
    tables = {"name": "raw", "data": {"dataset": "digits"}, "model": "cnn", "server": server}
    with pytest.raises(ConfigurationError, match="calibrate = true"):
        validate(Experiment.from_tables(tables))


@pytest.mark.slow
def test_clients_with_flipped_labels_form_a_separate_cluster() -> None:
    tables = {
        "name": "two-tasks",
        "seed": 2,
        "rounds": 6,
        "data": {"dataset": "digits", "clients": 8, "samples": 100},
        "model": {"name": "mlp", "hidden": [16]},
        "training": {"epochs": 3, "learning_rate": 0.1},
        "attackers": [{"count": 3, "data_attack": "label_flip"}],
    }
    both = Experiment.from_tables({**tables, "server": {"customizer": "clustered"}})
    one, two = simulate(Experiment.from_tables(tables)), simulate(both)
    assigned = two.records[-1].assignment
    honest, hostile = ({assigned[name][0] for name in side} for side in sides(both))
    assert len(honest) == len(hostile) == 1
    assert honest != hostile
    assert two.figures["accuracy"] > one.figures["accuracy"] + 0.03
