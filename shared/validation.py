"""Checks an experiment before it runs: builds its members and checks that they fit together."""

from typing import TYPE_CHECKING

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families import plugins

if TYPE_CHECKING:
    from rampart_fl.shared.robust.engine import Plan


def validate(experiment: Experiment) -> Experiment:
    """Builds every member that an experiment names, and checks that the members fit together.

    Returns:
        The experiment, with `packages` filled in.
    Raises:
        RampartError: a member or a combination of members is wrong; the message says which.

    >>> validate(Experiment.load("digits-benign")).packages
    {}
    """
    with plugins.known(experiment.packages) as packages:
        _validate(experiment)
    return experiment.model_copy(update={"packages": packages})


def build_plan(experiment: Experiment) -> "Plan":
    """Builds the stages that the server runs in every round."""
    with plugins.known(experiment.packages):
        return _build_plan(experiment)


def _build_plan(experiment: Experiment) -> "Plan":
    from rampart_fl.shared.robust.engine import Plan, ServerStep

    server = experiment.server
    plan = Plan.of(
        server.rule,
        server.detectors,
        server.customizer,
        ServerStep(learning_rate=server.learning_rate, momentum=server.momentum),
        server.calibrate,
        server.eviction,
        server.f,
    )
    customizer = plan.customizer
    if customizer.recovers and not server.calibrate:
        raise ConfigurationError(f"{customizer.name} needs whole models: calibrate = true")
    if customizer.claims and experiment.policy != "sync":
        raise ConfigurationError(
            f"{customizer.name} reads what clients report of a round's models: policy = sync"
        )
    return plan


def _validate(experiment: Experiment) -> None:
    from rampart_fl.shared.attacks.data import attacks as data_attacks
    from rampart_fl.shared.attacks.model import attacks as model_attacks
    from rampart_fl.shared.attacks.triggers import parse_trigger
    from rampart_fl.shared.learning.data.datasets import datasets
    from rampart_fl.shared.learning.data.partitions import partitions
    from rampart_fl.shared.learning.network.models import models
    from rampart_fl.shared.learning.network.vector import initial_model
    from rampart_fl.shared.learning.server_resources import check_needs
    from rampart_fl.shared.learning.training.objectives import parse_terms
    from rampart_fl.shared.learning.training.personalizers import personalizers
    from rampart_fl.shared.learning.training.schedules import schedules

    plan = build_plan(experiment)
    check_needs(experiment, plan)
    plan.check_rows(experiment.most_rows)
    datasets.parse(experiment.data.dataset)
    partitions.parse(experiment.data.partition)
    models.parse(experiment.model)
    if plan.customizer.isolates and initial_model(experiment)[0].statistics:
        plan.check_statistics()
    personalizer = personalizers.parse(experiment.personalizer)
    if personalizer.held_out and not plan.customizer.claims:
        raise ConfigurationError(
            f"the personalizer {personalizer.name} weighs models that the server offers: "
            "name a customizer that does, such as fedfomo"
        )
    for detector in plan.detectors:
        if detector.retraces and not personalizer.whole:
            raise ConfigurationError(
                f"{detector.name} retraces training of the whole model, and uploads of the "
                f"personalizer {personalizer.name} are not that: use another one"
            )
    parse_terms(experiment.training.objective)
    schedules.parse(experiment.training.schedule)
    parse_trigger(experiment.evaluation.trigger)
    for group in experiment.attackers:
        if group.attack is not None:
            model_attacks.parse(group.attack)
        if group.data_attack is not None:
            data_attacks.parse(group.data_attack)
