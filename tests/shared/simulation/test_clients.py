"""Simulated clients under attack: what attackers know, claim and upload."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack, Knowledge
from rampart_fl.shared.attacks.data import attacks
from rampart_fl.shared.attacks.data.label_flip import LabelFlip
from rampart_fl.shared.attacks.model.norm_riding import NormRiding
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.simulation import Simulation
from rampart_fl.shared.simulation.clients import SimulatedClients, Uploads
from tests.conftest import ForgetMembers


def clients(attackers: dict[str, Any], **tables: Any) -> SimulatedClients:
    experiment = Experiment.from_tables(
        {
            "name": "small",
            "data": {"dataset": "digits", "clients": 6, "samples": 60},
            "model": {"name": "mlp", "hidden": [4]},
            "training": {"epochs": 1},
            "attackers": [{"count": 2, **attackers}],
            "placement": "last",
            **tables,
        }
    )
    torch.set_num_threads(1)
    return SimulatedClients.of(experiment, "cpu")


def train(
    population: SimulatedClients, offset: float = 0.0, round_: int = 0
) -> tuple[Uploads, Tensor]:
    global_D = population.learner.initial_model()
    sent_KD = global_D.repeat(6, 1) + offset
    return population.train(population.names, sent_KD, global_D, round_), global_D


def test_attackers_with_full_knowledge_know_the_global_model() -> None:
    """After calibration, the norm of a norm-riding upload is just below the threshold."""
    server = {"detectors": [{"name": "norm_bound", "threshold": 3.0}]}
    attack = {"name": "norm_riding", "knows": "full"}
    uploads, _ = train(clients({"attack": attack}, server=server), offset=0.01)
    calibrated = (uploads.update_KD[-2:] + 0.01).norm(dim=1)
    assert calibrated.tolist() == pytest.approx([3 * 0.999] * 2, rel=1e-5)


def test_attackers_without_full_knowledge_know_only_the_model_they_received() -> None:
    """As over the network: the norm of the upload before calibration is near the threshold."""
    uploads, _ = train(clients({"attack": "norm_riding"}), offset=0.01)
    lengths = uploads.update_KD[-2:].norm(dim=1)
    assert lengths.tolist() == pytest.approx([NormRiding().threshold * 0.999] * 2, rel=1e-5)


def test_colluders_know_the_models_sent_to_each_other() -> None:
    """All upload the update that leads from the first colluder's model to a fresh model."""
    inside = {"name": "random_noise", "reading": "parameters"}
    population = clients({"attack": {"name": "sybil_clones", "attack": inside}})
    global_D = population.learner.initial_model()
    sent_KD = global_D + torch.arange(6.0)[:, None]
    uploads = population.train(population.names, sent_KD, global_D, 0)
    assert torch.equal(uploads.update_KD[-2], uploads.update_KD[-1])
    reached_D = sent_KD[4] + uploads.update_KD[-2]
    assert float(reached_D.abs().max()) <= 1 / 4**0.5 + 1e-5


def test_each_attacker_draws_its_own_fresh_model() -> None:
    attack = {"name": "random_noise", "reading": "parameters"}
    uploads, global_D = train(clients({"attack": attack}))
    reached = global_D + uploads.update_KD[-2:]
    bound = 1 / 4**0.5  # the widest of torch's initial ranges in this model
    assert bool((reached.abs() <= bound).all())
    assert not torch.allclose(reached[0], reached[1], atol=0.01)


def test_jaa_attackers_compute_the_jacobian_on_their_own_data() -> None:
    jaa, _ = train(clients({"attack": {"name": "jaa", "alpha": 1}}))
    lie, _ = train(clients({"attack": "lie"}))
    assert not torch.equal(jaa.update_KD[-2], jaa.update_KD[-1])
    assert torch.equal(lie.update_KD[-2], lie.update_KD[-1])
    assert torch.equal(jaa.update_KD[:4], lie.update_KD[:4])


def test_gap_inflation_falsifies_the_claimed_loss_gap() -> None:
    uploads, _ = train(clients({"attack": {"name": "gap_inflation", "gap": 7.0}}))
    assert [uploads.metrics[f"client-0{k}"]["loss_gap"] for k in (4, 5)] == [7.0, 7.0]
    own = uploads.metrics["client-00"]
    assert own["loss_gap"] == own["loss_before"] - own["loss_after"]


def test_a_backdoor_scales_its_update_in_its_own_rounds_only() -> None:
    poison = {"name": "badnets", "size": 2, "scale": 50.0, "poison_rate": 0.0, "from_round": 1}
    population = clients({"data_attack": poison})
    before, after = (train(population, round_=round_)[0].update_KD[-1].norm() for round_ in (0, 1))
    assert 20 < float(after / before) < 200


def test_attackers_in_one_process_upload_the_same_as_separate_attackers() -> None:
    population = clients({"attack": "gaussian"})
    uploads, _ = train(population)
    known = Knowledge(participants=6, attackers=2, seed=population.experiment.seed, first=1)
    attack = population.groups[0].attack
    assert attack is not None
    alone_FD = attack.apply(torch.zeros_like(uploads.update_KD[-1:]), known)
    assert torch.equal(alone_FD[0], uploads.update_KD[-1])


def test_attackers_see_only_their_own_updates_if_only_attackers_are_probed() -> None:
    """No honest client is probed, so full knowledge includes only the colluders' updates."""
    full = clients({"attack": {"name": "mimic", "knows": "full", "target": 1}})
    honest = clients({"attack": {"name": "sign_flip", "until_round": 0}})
    names, global_D = ["client-04", "client-05"], full.learner.initial_model()
    crafted = full.probe(names, global_D, 0)
    own = honest.probe(names, global_D, 0)
    for name in names:
        assert torch.equal(crafted[name], own["client-05"])


@pytest.mark.parametrize(("knows", "same"), [("full", True), ("partial", False)])
def test_only_full_knowledge_includes_the_servers_own_update(knows: str, same: bool) -> None:
    """Uploads of the attack on FLTrust have the norm of what it takes for the server's update."""
    simulation = Simulation.of(
        clients(
            {"attack": {"name": "fltrust_adaptive", "knows": knows}},
            data={"dataset": "digits", "clients": 6, "samples": 60, "reserved": 50},
            server={"rule": "fltrust", "root": {"dataset": "digits", "size": 50}},
        ).experiment
    )
    uploads, global_D = train(simulation.clients, round_=2)
    own_D = simulation.server.rounds.resources.update(global_D, 2)
    assert own_D is not None
    lengths = uploads.update_KD[-2:].norm(dim=1).tolist()
    assert (lengths == pytest.approx([float(own_D.norm())] * 2, rel=1e-4)) == same


def test_attackers_own_training_settings_apply_only_in_poisoned_rounds() -> None:
    """Poisoning attackers train as if everyone had these settings; all others train as usual."""
    dba = {"name": "dba", "width": 3, "gap": 1, "from_round": 1}
    own = {"epochs": 3, "learning_rate": 0.05}
    with_own, usual = (clients({"data_attack": {**dba, **more}}) for more in (own, {}))
    everyone = clients({"data_attack": dba}, training=own)
    update_KD, usual_KD, all_KD = (
        train(one, round_=1)[0].update_KD for one in (with_own, usual, everyone)
    )
    assert torch.allclose(update_KD[:4], usual_KD[:4], atol=1e-6)
    assert torch.allclose(update_KD[4:], all_KD[4:], atol=1e-6)
    assert not torch.allclose(update_KD[4:], usual_KD[4:], atol=1e-3)
    before, ever = (train(one, round_=0)[0] for one in (with_own, usual))
    assert torch.equal(before.update_KD, ever.update_KD) and before.metrics == ever.metrics


@pytest.mark.parametrize("method", ["apply", "training", "upload"])
def test_errors_of_a_users_data_attack_name_it(forget_members: ForgetMembers, method: str) -> None:
    def fail(self: DataAttack, *args: Any) -> Any:
        raise KeyError("a")

    forget_members(attacks)
    own = type("Own", (LabelFlip,), {method: fail})
    attacks.register("own")(own)
    own.package = "my-package==1"
    with pytest.raises(KeyError) as caught:
        train(clients({"data_attack": "own"}))
    assert caught.value.__notes__ == ["raised by 'own' of my-package==1"]
