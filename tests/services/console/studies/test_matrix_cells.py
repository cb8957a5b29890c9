"""The cells of a matrix: the attack, the defence and the seed that each cell puts into the base."""

from typing import Any

import pytest

from rampart_fl.services.console.studies.batch import run_simulation
from rampart_fl.services.console.studies.matrix_cells import (
    MatrixCell,
    member,
    plan,
    with_attack,
    with_defence,
)
from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.experiment import Experiment

SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 5, "samples": 60},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"epochs": 1, "batch_size": 100},
    "personalizer": {"name": "fedcap", "lambda": 0.7},
    "server": {"customizer": {"name": "fedcap", "alpha": 3, "phi": 0.2}, "sample_cap": 77},
    "attackers": [{"count": 2, "attack": "lie"}],
}
BASE = Experiment.from_tables(SMALL)


def test_cell_replaces_the_attack_and_the_defence_of_the_base() -> None:
    (cell,) = plan(BASE, ["ipm:epsilon=2"], ["nnm+trimmed_mean"], rounds=7)
    experiment = cell.experiment
    assert [(g.count, g.attack) for g in experiment.attackers] == [
        (2, {"name": "ipm", "epsilon": 2})
    ]
    assert [stage["name"] for stage in experiment.server.rule] == ["nnm", "trimmed_mean"]
    assert (experiment.server.f, experiment.server.customizer["name"]) == (2, "global_model")
    assert (experiment.personalizer["name"], experiment.rounds) == ("none", 7)
    assert experiment.server.sample_cap == 77


def test_defences_keep_the_root_and_public_data_of_the_server() -> None:
    root = {"dataset": "digits", "size": 7}
    base = Experiment.from_tables(
        {**BASE.tables(), "server": {"root": root, "public": {"dataset": "noise", "size": 9}}}
    )
    (cell,) = plan(base, ["sign_flip"], ["fltrust"])
    server = cell.experiment.server
    assert server.root is not None and server.root.size == 7
    assert server.public is not None and server.public.size == 9


def test_fedcap_defences_keep_the_fedcap_settings_of_the_base() -> None:
    ours, paper = (c.experiment for c in plan(BASE, ["sign_flip"], ["fedcap", "fedcap-paper"]))
    assert (ours.server.eviction.bounded, paper.server.eviction.bounded) == (True, False)
    assert ours.server.f == paper.server.f == sum(group.count for group in ours.attackers)
    for result in (ours, paper):
        assert result.server.f == 2
        assert result.server.customizer == {"name": "fedcap", "alpha": 3, "phi": 0.2}
        assert result.personalizer == {"name": "fedcap", "lambda": 0.7}
    assert ours.server.detectors == [{"name": "response"}, {"name": "challenge"}]
    assert paper.server.detectors == [{"name": "norm_bound", "threshold": 10}]
    plain = Experiment.from_tables({**SMALL, "personalizer": "none", "server": {}})
    (cell,) = plan(plain, ["none"], ["fedcap"])
    assert cell.experiment.server.customizer["alpha"] == 10
    assert cell.experiment.personalizer["name"] == "fedcap"


def test_reference_defences_use_their_personalizer_and_plain_averaging() -> None:
    alone, tuned = (c.experiment for c in plan(BASE, ["lie"], ["local_only", "fine_tuned"]))
    assert alone.personalizer == {"name": "local"}
    assert tuned.personalizer == {"name": "fine_tune"}
    for result in (alone, tuned):
        assert result.server.rule == [{"name": "weighted_mean"}]
        assert result.server.customizer["name"] == "global_model"
        assert (result.server.detectors, result.server.sample_cap) == ([], 77)


@pytest.mark.parametrize("attack", ["ipm", "label_flip"])
def test_attacks_do_not_affect_local_only_clients(attack: str) -> None:
    (cell,) = plan(BASE, [attack], ["local_only"])
    hit = Experiment.from_tables(with_defence(with_attack(BASE, attack), "local_only", 2))
    assert hit.attackers != cell.experiment.attackers
    assert (
        run_simulation(hit)["accuracy_personalized"]
        == run_simulation(cell.experiment)["accuracy_personalized"]
    )


def test_backdoor_success_is_evaluated_only_under_backdoor_attacks() -> None:
    data, model = plan(BASE, ["dba:width=3", "lie"], ["median"])
    assert data.experiment.evaluation.trigger == {"name": "dba", "width": 3}
    assert data.experiment.attackers[0].data_attack == {"name": "dba", "width": 3}
    assert model.experiment.evaluation.trigger is None


def test_thirty_percent_attack_if_the_base_has_no_attackers() -> None:
    benign = Experiment.from_tables({**SMALL, "attackers": []})
    (cell,) = plan(benign, ["sign_flip"], ["median"])
    assert (cell.experiment.attackers[0].count, cell.experiment.server.f) == (2, 2)


@pytest.mark.parametrize(
    ("attacks", "defences", "message"),
    [
        ([], ["median"], "a matrix needs at least one attack"),
        (["ipm"], [], "a matrix needs at least one defence"),
        (["none", "ipm", "none"], ["median"], "attack 'none' is listed 2 times; list it once"),
        (["ipm"], ["median", "median"], "defence 'median' is listed 2 times; list it once"),
    ],
)
def test_empty_lists_and_duplicates_are_refused(
    attacks: list[str], defences: list[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        plan(BASE, attacks, defences)


def test_invalid_attacks_and_defences_are_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownMember, match="label_flip"):
        plan(BASE, ["sing_flip"], ["median"])
    with pytest.raises(UnknownMember, match="trimmed_mean"):
        plan(BASE, ["sign_flip"], ["medain"])
    with pytest.raises(ConfigurationError, match="epsilon"):
        plan(BASE, ["ipm:epsilan=2"], ["median"])
    with pytest.raises(ConfigurationError, match="key=value"):
        member("lie:knows")
    with pytest.raises(ConfigurationError, match=r"krum needs .* n=5, f=2"):
        plan(BASE, ["sign_flip"], ["median", "krum"])


def test_each_seed_has_its_own_runs_in_seed_order() -> None:
    base = BASE.model_copy(update={"seed": 4})
    cells = plan(base, ["lie"], ["median", "fedcap"], seeds=3)
    assert [cell.experiment.seed for cell in cells] == [4, 4, 5, 5, 6, 6], "seed by seed"
    assert len({cell.file for cell in cells}) == 6
    assert MatrixCell("lie", "median", cells[0].experiment, network=True).file not in cells[0].file
