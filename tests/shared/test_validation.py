"""For every constraint of the table, an experiment breaks this constraint and no other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.shared.built_experiment import build_experiment
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.simulation import Simulation, simulate
from rampart_fl.shared.validation import (
    CONSTRAINTS,
    NO_SHARED_BOUND,
    Constraint,
    barring_conflict,
    validate,
)

DIGITS = {"name": "broken", "data": {"dataset": "digits"}, "model": "cnn"}
WISDM = {**DIGITS, "data": {"dataset": "wisdm"}, "model": "mlp"}
RESNET = {**DIGITS, "data": {"dataset": "cifar10"}, "model": "wide_resnet"}
RETRACES = {"detectors": ["fedredefense"]}
EXACT = {"name": "interpolated", "mode": "exact"}
BREAKS: dict[str, tuple[dict[str, Any], str]] = {
    "The model fits the task and the shape of the samples.": (
        {**DIGITS, "model": "text"},
        "the model 'text' takes token ids (tokens,), not samples of shape (1, 8, 8)",
    ),
    "The personalizer suits the model.": (
        {**DIGITS, "personalizer": {"name": "fedper", "head": "nope"}},
        "the model has no layer 'nope' with tensors; it has conv1.bias, conv1.weight, conv2.bias, "
        "conv2.weight, hidden.bias, hidden.weight, output.bias, output.weight",
    ),
    "If training is private, its privacy loss can be computed.": (
        {**DIGITS, "personalizer": "fedrod", "training": {"privacy": {"clip": 1.0}}},
        "[training.privacy] cannot account for the personalizer 'fedrod': samples also affect "
        "its uploads in other ways than through noised gradients",
    ),
    "If groups are isolated, detectors judge each client separately.": (
        {
            **DIGITS,
            "server": {
                "customizer": "flcert",
                "detectors": ["robust_distance"],
                "eviction": {"bounded": False},
            },
        },
        "flcert isolates groups from each other, but robust_distance compares clients of all "
        "groups; use norm_bound or no detector",
    ),
    "If groups are isolated, no bound on barred clients connects them.": (
        {**DIGITS, "server": {"customizer": "flcert", "detectors": ["norm_bound"]}},
        "flcert isolates groups from each other, but all groups share the bound on barred clients: "
        "if norm_bound bars clients of one group, clients of other groups may stay; set "
        "server.eviction.bounded = false",
    ),
    "If groups are isolated, the model has no running statistics.": (
        {**RESNET, "server": {"customizer": "flcert"}},
        "flcert isolates groups from each other, but running statistics are medians over all "
        "clients: use a model without batch normalization",
    ),
    "No detector is listed twice.": (
        {
            **DIGITS,
            "server": {"detectors": ["norm_bound", {"name": "norm_bound", "threshold": 10}]},
        },
        "server.detectors lists norm_bound twice with the same parameters; list it once",
    ),
    "If detectors share challenges, they draw and sketch challenges alike.": (
        {**DIGITS, "server": {"detectors": ["response", {"name": "challenge", "blocks": 8}]}},
        "`response` compares the challenges of the detector `challenge` with its own decoys; set "
        "blocks = 32 for challenge, not 8",
    ),
    "If a detector reconstructs training, all clients train from the global model.": (
        {**DIGITS, "server": {**RETRACES, "customizer": "fedcap"}},
        "fedredefense reconstructs training from the global model, but with the customizer fedcap, "
        "clients start from other models; use global_model",
    ),
    "If a detector reconstructs training, clients train and upload the whole model.": (
        {**DIGITS, "server": RETRACES, "personalizer": "fedper"},
        "fedredefense reconstructs training of the whole model on all samples, but the "
        "personalizer fedper does not upload the result of such training; use another personalizer",
    ),
    "If a detector reconstructs training, the model has no running statistics.": (
        {**RESNET, "server": RETRACES},
        "fedredefense reconstructs training with fixed statistics, but batch normalization uses "
        "the statistics of each batch; use a model without batch normalization, or another "
        "detector",
    ),
    "If a detector reconstructs training, samples are not rows of token ids.": (
        {**DIGITS, "data": {"dataset": "ag_news"}, "model": "text", "server": RETRACES},
        "fedredefense searches by gradient descent for samples that could have caused an update, "
        "but token ids have no gradient; use another detector",
    ),
    "If a customizer needs clients' whole models, uploads are calibrated.": (
        {**DIGITS, "server": {"customizer": "clustered", "calibrate": False}},
        "clustered needs whole models: set calibrate = true",
    ),
    "If a customizer reads clients' reports, all clients report on the same round.": (
        {
            **DIGITS,
            "server": {"customizer": "fedfomo"},
            "personalizer": "fedfomo",
            "policy": "buffered",
        },
        "fedfomo reads what clients report about the models of one round: set policy = sync",
    ),
    "If a personalizer weighs offered models, the customizer offers models.": (
        {**DIGITS, "personalizer": "fedfomo"},
        "the personalizer fedfomo weighs models that the server offers: name a customizer that "
        "offers models, such as fedfomo",
    ),
    "If a stage needs the server's own update, there are root samples.": (
        {**DIGITS, "server": {"rule": "fltrust", "public": {"dataset": "usps"}}},
        "fltrust needs the server's own update: name a data set in [server.root]",
    ),
    "If a stage needs unlabelled public samples, [server.public] names a data set.": (
        {**DIGITS, "server": {"rule": "sdea", "root": {"dataset": "usps"}}},
        "sdea needs public samples: name a data set in [server.public]",
    ),
    "If a stage needs labelled public samples, there are public samples.": (
        {**DIGITS, "server": {"rule": "sageflow"}},
        "sageflow needs labelled public samples: name a data set in [server.public]",
    ),
    "Root samples fit the clients' model and classes.": (
        {**DIGITS, "server": {"rule": "fltrust", "root": {"dataset": "cifar100"}}},
        "cifar100 has 100 classes, but the clients' digits has 10: "
        "the server cannot use these labels",
    ),
    "Public samples fit the clients' model and, if a stage needs labels, the clients' classes.": (
        {**DIGITS, "server": {"public": {"dataset": "wisdm"}}},
        "samples of wisdm have shape (43,); they cannot be converted to shape (1, 8, 8)",
    ),
    "The server's test samples fit the clients' model and classes.": (
        {**DIGITS, "server": {"test": {"dataset": "cifar100"}}},
        "cifar100 has 100 classes, but the clients' digits has 10: "
        "the server cannot use these labels",
    ),
    "Only images are augmented.": (
        {**WISDM, "server": {"public": {"dataset": "wisdm", "augmentation": "weak"}}},
        "server.public: augmentation is for images, but the samples have shape (43,)",
    ),
    "Backdoors fit the samples and the classes.": (
        {**DIGITS, "evaluation": {"trigger": {"name": "badnets", "target": 10}}},
        "badnets: there is no class 10; the task has 10 classes",
    ),
    "A starting model has the tensors of the experiment's model.": (
        {**DIGITS, "model": {"name": "cnn", "start": {"file": "missing.safetensors"}}},
        "model.start: there is no file missing.safetensors",
    ),
    "Rounds can have enough rows for every stage.": (
        {**DIGITS, "fraction": 0.25, "server": {"rule": "krum", "f": 3}},
        "no round can succeed: krum needs n >= 2f + 3 = 9 rows: n=5, f=3",
    ),
    "Output noise is added only to coordinates that clients upload.": (
        {**DIGITS, "personalizer": "fedper", "training": {"output_noise": 0.1}},
        "clients of fedper never upload some coordinates, but training.output_noise would change "
        "them; leave out one of the two",
    ),
    "If clients have no common model, no setting assumes a common model.": (
        {**DIGITS, "personalizer": EXACT, "fraction": 0.5, "server": {"momentum": 0.9}},
        "`interpolated` in exact mode has no common model: every client takes plain steps towards "
        "its own aggregate. Leave out server.momentum, fraction",
    ),
}
"""By constraint: tables that break it, and the error message."""


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda constraint: constraint.holds)
def test_broken_constraint_is_rejected_with_its_message(constraint: Constraint) -> None:
    tables, message = BREAKS[constraint.holds]
    experiment = Experiment.from_tables(tables)
    built = build_experiment(experiment)
    assert [row.holds for row in CONSTRAINTS if list(row.broken_by(built))] == [constraint.holds]
    with pytest.raises(ConfigurationError) as refusal:
        validate(experiment)
    assert str(refusal.value) == message


def test_every_constraint_has_an_example() -> None:
    assert BREAKS.keys() == {constraint.holds for constraint in CONSTRAINTS}
    assert len(BREAKS) == len(CONSTRAINTS), "each constraint has a name of its own"


@pytest.mark.parametrize(
    ("eviction", "refused"),
    [
        ({}, True),
        ({"mode": "quarantine"}, True),
        ({"by": "operator"}, True),
        ({"mode": "observe"}, True),
        ({"mode": "reject"}, False),
        ({"bounded": False}, False),
        ({"mode": "observe", "bounded": False}, False),
    ],
)
def test_isolated_groups_share_no_bound_in_any_mode_that_may_bar_clients(
    eviction: dict[str, Any], refused: bool
) -> None:
    server = {"customizer": "flcert", "detectors": ["norm_bound"], "eviction": eviction}
    experiment = Experiment.from_tables({**DIGITS, "server": server})
    if refused:
        with pytest.raises(ConfigurationError, match="share the bound on barred clients"):
            validate(experiment)
    else:
        assert validate(experiment)
    alone = Experiment.from_tables({**DIGITS, "server": {**server, "detectors": []}})
    assert validate(alone)


@pytest.mark.parametrize(
    ("server", "conflict"),
    [
        ({"detectors": ["norm_bound"], "eviction": {"mode": "reject"}}, True),
        ({"detectors": ["norm_bound"], "eviction": {"bounded": False}}, False),
        ({"detectors": [], "eviction": {"mode": "reject"}}, False),
    ],
)
def test_isolated_groups_conflict_with_barring_if_the_bound_connects_them(
    server: dict[str, Any], conflict: bool
) -> None:
    tables = {**DIGITS, "server": {"customizer": "flcert", **server}}
    experiment = validate(Experiment.from_tables(tables))
    reason = barring_conflict(experiment)
    assert reason == (BREAKS[NO_SHARED_BOUND.holds][1] if conflict else "")
    tables["server"] = {**server, "customizer": "global_model"}
    assert barring_conflict(Experiment.from_tables(tables)) == ""


def test_a_detector_may_be_listed_twice_with_different_parameters() -> None:
    detectors = ["norm_bound", {"name": "norm_bound", "threshold": 5}]
    validate(Experiment.from_tables({**DIGITS, "server": {"detectors": detectors}}))


@pytest.mark.parametrize(
    ("response", "challenge", "wrong"),
    [
        ({}, {"sketch": 2048}, "sketch = 1024 for both detectors, not 2048"),
        ({"sketch": 2048}, {"sketch": 2048, "blocks": 1}, "blocks = 32 for challenge, not 1"),
        ({"sketch": 2048}, {"sketch": 2048}, None),
        ({"challenges": False}, {"sketch": 2048, "blocks": 1}, None),
    ],
)
def test_detectors_that_share_challenges_need_equal_sketch_settings(
    response: dict[str, Any], challenge: dict[str, Any], wrong: str | None
) -> None:
    detectors = [{"name": "response", **response}, {"name": "challenge", **challenge}]
    experiment = Experiment.from_tables({**DIGITS, "server": {"detectors": detectors}})
    if wrong is None:
        assert validate(experiment)
    else:
        with pytest.raises(ConfigurationError, match=wrong):
            validate(experiment)


@pytest.mark.parametrize(
    ("tables", "backdoor", "wrong"),
    [
        (DIGITS, {"name": "badnets", "target": 10}, "there is no class 10"),
        (DIGITS, {"name": "dba"}, "4x10 pixels does not fit into 8x8"),
        (WISDM, {"name": "badnets"}, r"needs images, not samples of shape \(43,\)"),
        (DIGITS, {"name": "dba", "width": 3}, None),
        (DIGITS, {"name": "label_flip"}, None),
    ],
)
def test_attackers_backdoors_must_fit_the_task(
    tables: dict[str, Any], backdoor: dict[str, Any], wrong: str | None
) -> None:
    experiment = Experiment.from_tables(
        {**tables, "attackers": [{"count": 1, "data_attack": backdoor}]}
    )
    if wrong is None:
        assert validate(experiment)
    else:
        with pytest.raises(ConfigurationError, match=wrong):
            validate(experiment)


def test_public_labels_are_checked_only_for_stages_that_need_them() -> None:
    public = {"public": {"dataset": "cifar100"}}
    with pytest.raises(ConfigurationError, match="cifar100 has 100 classes"):
        validate(Experiment.from_tables({**DIGITS, "server": {"rule": "sageflow", **public}}))
    assert validate(Experiment.from_tables({**DIGITS, "server": {"rule": "sdea", **public}}))


@pytest.mark.parametrize(
    ("unfit", "named"),
    [
        ({"server": {"detectors": ["norm_bound"]}}, "server.detectors"),
        ({"server": {"customizer": "fedcap"}}, "server.customizer"),
        ({"server": {"learning_rate": 0.5}}, "server.learning_rate"),
        ({"server": {"momentum": 0.5}}, "server.momentum"),
        ({"server": {"test": {"dataset": "digits"}}}, "server.test"),
        ({"fraction": 0.5}, "fraction"),
        ({"policy": "buffered"}, "policy"),
        ({"training": {"momentum": 0.5}}, "training.momentum"),
        ({"training": {"objective": "fedprox"}}, "training.objective"),
        ({"training": {"privacy": {}}}, "training.privacy"),
        ({"training": {"output_noise": 0.1}}, "training.output_noise"),
        (
            {"attackers": [{"count": 1, "data_attack": {"name": "badnets", "epochs": 9}}]},
            "training settings of a data attack, such as its learning_rate",
        ),
        ({"server": {"rule": "performance_aware"}}, "performance_aware"),
        ({**RESNET}, "a model with running statistics"),
    ],
)
def test_settings_incompatible_with_exact_mode_are_named(unfit: dict[str, Any], named: str) -> None:
    tables = {**DIGITS, **unfit, "personalizer": EXACT}
    with pytest.raises(ConfigurationError, match=rf"its own aggregate\. Leave out {named}$"):
        validate(Experiment.from_tables(tables))


@pytest.mark.parametrize("wrong", ["digits-benign", Path("own.toml"), {"name": "x"}, None])
@pytest.mark.parametrize("use", [validate, simulate])
def test_anything_but_an_experiment_is_a_type_error(use: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"expected an Experiment, not .*: .* with Experiment\.load"
    ):
        use(wrong)


def test_simulation_rejects_experiments_that_fail_validation() -> None:
    tables, message = BREAKS["Rounds can have enough rows for every stage."]
    with pytest.raises(ConfigurationError) as refusal:
        Simulation.of(Experiment.from_tables(tables))
    assert str(refusal.value) == message
