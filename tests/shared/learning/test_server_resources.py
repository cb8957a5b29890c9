"""Resources that the server's stages get, and tables that an experiment must have for them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.network.vector import build_module, flatten, initial_model, load
from rampart_fl.shared.learning.server_resources import ServerResources
from rampart_fl.shared.learning.training.cohort import Batches
from rampart_fl.shared.robust import Context, Report, Rows, State
from rampart_fl.shared.robust.base import Rule
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.simulation import simulate
from rampart_fl.shared.validation import validate

ROOT = {"dataset": "digits", "size": 30}
PUBLIC = {"dataset": "digits", "size": 40, "augmentation": "weak"}


def experiment(rule: Any = "fltrust", **server: Any) -> Experiment:
    return Experiment.from_tables(
        {
            "name": "server-data",
            "seed": 4,
            "data": {"dataset": "digits", "clients": 4, "samples": 60, "reserved": 100},
            "model": {"name": "cnn", "channels": [2], "hidden": 8},
            "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.05},
            "personalizer": {"name": "fedcap", "lambda": 0.1},
            "server": {"rule": rule, **server},
        }
    )


def equipped(chosen: Experiment, **context: Any) -> Context:
    return ServerResources.of(chosen, build_plan(chosen)).attach_to(Context(**context))


def test_stages_without_needs_get_no_resources() -> None:
    chosen = experiment("median", root=ROOT, public=PUBLIC)
    held = ServerResources.of(chosen, build_plan(chosen))
    assert held.learner is None and held.public is None and held.root is None
    given = held.attach_to(Context(round=3, reference_D=torch.ones(2)))
    assert (given.round, given.predict, given.public, given.server_update_D) == (
        3,
        None,
        None,
        None,
    )


class Judge(Rule):
    """A rule that asks for everything but the server's own update."""

    name = "judge"

    def needs(self) -> frozenset[Need]:
        return frozenset({"predict", "public", "labels"})

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        raise AssertionError("it is only asked for its needs")


@pytest.mark.parametrize("augmentation", ["none", "weak", "strong"])
def test_stages_get_the_network_and_the_public_samples_that_they_need(augmentation: str) -> None:
    chosen = experiment(public={**PUBLIC, "augmentation": augmentation})
    spec, start_D = initial_model(chosen)
    given = ServerResources.of(chosen, Plan.of(Judge())).attach_to(Context(reference_D=start_D))
    assert given.predict is not None and given.public is not None
    x_P, y_P, augment = given.public.x_P, given.public.y_P, given.public.augment
    assert tuple(x_P.shape) == (40, 1, 8, 8) and y_P is not None and y_P.shape == (40,)
    models_KD = torch.stack([start_D, torch.zeros(spec.dim)])
    logits_KBC = given.predict(models_KD, x_P.expand(2, -1, -1, -1, -1))
    torch.testing.assert_close(logits_KBC[0], build_module(chosen)(x_P), rtol=1e-4, atol=1e-5)
    assert not logits_KBC[1].any()
    assert given.server_update_D is None
    assert (augment is None) == (augmentation == "none")
    if augment is not None:
        one, other = (augment(x_P, torch.Generator().manual_seed(1)) for _ in range(2))
        assert torch.equal(one, other) and not torch.equal(one, x_P)


def test_public_labels_of_another_task_are_rejected() -> None:
    chosen = experiment(public={"dataset": "noise", "size": 5})
    with pytest.raises(ConfigurationError, match="classes"):
        ServerResources.of(chosen, Plan.of(Judge()))


def by_hand(chosen: Experiment, x: Tensor, y: Tensor, start_D: Tensor, round_: int) -> Tensor:
    """Two epochs of SGD with torch's own module and optimizer, on the same batches."""
    module = load(build_module(chosen), start_D)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    batches = Batches.draw([len(y)], ["server"], chosen.training, chosen.seed, round_)
    for index_B, weight_B in zip(batches.index_KSB[0], batches.weight_KSB[0], strict=True):
        at = index_B[weight_B > 0]
        optimizer.zero_grad()
        functional.cross_entropy(module(x[at]), y[at]).backward()
        optimizer.step()
    return flatten(module) - start_D


def test_server_update_equals_plain_training_on_the_root_data() -> None:
    chosen = experiment(root=ROOT)
    _, start_D = initial_model(chosen)
    held = ServerResources.of(chosen, build_plan(chosen))
    assert held.root is not None
    x, y = held.root.x_train_KN[0], held.root.y_train_KN[0]
    assert tuple(x.shape) == (30, 1, 8, 8)
    updates = []
    for round_ in (0, 1):
        given = held.attach_to(Context(round=round_, reference_D=start_D)).server_update_D
        assert given is not None
        expected_D = by_hand(chosen, x, y, start_D, round_)
        torch.testing.assert_close(given, expected_D, rtol=1e-4, atol=1e-6)
        updates.append(given)
    assert not torch.equal(*updates), "every round draws its own batches"


def test_test_samples_serve_no_other_role_even_if_tables_spell_out_defaults() -> None:
    means = {"name": "synthetic_means", "clients": 40, "samples": 4}
    tables = experiment(
        root={"dataset": {**means, "dimension": 1}, "size": 10},
        test={"dataset": means, "size": 10},
    ).tables()
    data = {"dataset": means, "partition": "by_group", "clients": 4, "reserved": 20}
    chosen = Experiment.from_tables({**tables, "data": data, "model": "mean"})
    held = ServerResources.of(chosen, build_plan(chosen))
    assert held.root is not None and held.test is not None
    trained, tested = held.root.x_train_KN.flatten(), held.test.x_test_KT.flatten()
    assert len(trained) == len(tested) == 10
    assert not torch.isin(tested, trained).any()


def test_server_training_ignores_client_objectives_and_output_noise() -> None:
    chosen = experiment(root=ROOT)
    _, start_D = initial_model(chosen)
    tables = chosen.tables()
    tables["training"] |= {"objective": [{"name": "fedprox", "mu": 3.0}], "output_noise": 0.5}
    given = equipped(Experiment.from_tables(tables), reference_D=start_D).server_update_D
    plain = equipped(chosen, reference_D=start_D).server_update_D
    assert given is not None and plain is not None
    assert torch.equal(given, plain)


def test_server_update_is_reproducible() -> None:
    chosen = experiment(root=ROOT)
    _, start_D = initial_model(chosen)
    one, other = (equipped(chosen, round=2, reference_D=start_D) for _ in range(2))
    assert one.server_update_D is not None and other.server_update_D is not None
    assert torch.equal(one.server_update_D, other.server_update_D)


@pytest.mark.parametrize(
    ("rule", "server", "message"),
    [
        ("fltrust", {}, r"fltrust needs the server's own update.*\[server.root\]"),
        ("fltrust", {"public": PUBLIC}, r"\[server.root\]"),
        ("monna", {}, "monna needs the server's own update"),
        ({"name": "performance_aware", "rule": "fltrust"}, {}, r"\[server.root\]"),
        ("fltrust", {"root": {"dataset": "no-such-set"}}, "no-such-set"),
        ("fltrust", {"root": {"dataset": "cifar100"}}, "100 classes"),
        ("median", {"public": {"dataset": "wisdm"}}, "cannot be converted"),
        ("fltrust", {"root": {**ROOT, "size": 0}}, "size"),
        ("fltrust", {"root": {**ROOT, "sise": 3}}, "sise"),
    ],
)
def test_validation_rejects_missing_or_unsuitable_server_data(
    rule: Any, server: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        validate(experiment(rule, **server))


def test_only_images_can_be_augmented() -> None:
    tables = experiment("median", public={"dataset": "wisdm", "augmentation": "weak"}).tables()
    chosen = Experiment.from_tables({**tables, "data": {"dataset": "wisdm"}, "model": "mlp"})
    with pytest.raises(ConfigurationError, match="augmentation is for images"):
        validate(chosen)


def test_root_data_beyond_the_reserved_samples_is_rejected() -> None:
    chosen = experiment(root={"dataset": "digits", "size": 1600})
    with pytest.raises(ConfigurationError, match="reserved"):
        ServerResources.of(validate(chosen), build_plan(chosen))


@pytest.mark.parametrize(
    ("rule", "personalizer", "objective"),
    [
        ("fltrust", "ditto", "hmsdfl"),
        ({"name": "sageflow", "entropy": 3.0}, {"name": "fedcap", "lambda": 0.1}, "plain"),
        ({"name": "sdea", "epochs": 2}, "ditto", "msdfl"),
    ],
)
def test_server_rules_work_with_client_personalizers_and_objectives(
    rule: Any, personalizer: Any, objective: str
) -> None:
    tables = experiment(rule, root=ROOT, public=PUBLIC).tables()
    tables["training"]["objective"] = objective
    changed = {**tables, "personalizer": personalizer, "rounds": 2}
    result = simulate(validate(Experiment.from_tables(changed)))
    assert [record.status for record in result.records] == ["published"] * 2
    assert result.figures["accuracy_personalized"] is not None
    assert not torch.equal(result.global_D, initial_model(result.experiment)[1])


def test_monna_with_a_client_as_pivot_needs_no_root_data() -> None:
    validate(experiment({"name": "monna", "pivot": "client-00"}))
