"""Builds the objects that an experiment names, such as its rule, data set and personalizer."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families import plugins

if TYPE_CHECKING:
    from rampart_fl.shared.attacks.base import DataAttack
    from rampart_fl.shared.learning.data.datasets import Dataset
    from rampart_fl.shared.learning.training.personalizers import Personalizer
    from rampart_fl.shared.modelspec import ModelSpec
    from rampart_fl.shared.robust.customizers import Customizer
    from rampart_fl.shared.robust.engine import Plan


@dataclass(frozen=True)
class BuiltExperiment:
    """An experiment and the objects built from it.

    The constraints in `validation` check the experiment and the objects.
    """

    experiment: Experiment
    plan: "Plan"
    dataset: "Dataset"
    personalizer: "Personalizer"
    data_attacks: "tuple[DataAttack, ...]"

    @property
    def customizer(self) -> "Customizer":
        """The customizer of the plan."""
        return self.plan.customizer

    @cached_property
    def spec(self) -> "ModelSpec":
        """The model's tensors; the model is built when `spec` is first read."""
        from rampart_fl.shared.learning.network.vector import outline, spec_of

        return spec_of(outline(self.experiment))


def build_experiment(experiment: Experiment) -> BuiltExperiment:
    """Builds an experiment's stages, data set and other members, even if they do not fit together.

    Raises:
        RampartError: a stage, data set or other member is unknown or has wrong parameters.
    """
    from rampart_fl.shared.attacks.data import attacks as data_attacks
    from rampart_fl.shared.attacks.model import attacks as model_attacks

    plan = build_plan(experiment)
    dataset, personalizer = build_for_clients(experiment)
    poisons = []
    for group in experiment.attackers:
        if group.attack is not None:
            model_attacks.parse(group.attack)
        if group.data_attack is not None:
            poisons.append(data_attacks.parse(group.data_attack))
    return BuiltExperiment(experiment, plan, dataset, personalizer, tuple(poisons))


def build_for_clients(experiment: Experiment) -> "tuple[Dataset, Personalizer]":
    """Builds the data set, the personalizer and the other members that clients need.

    Args:
        experiment: the whole experiment, or the part that clients know.
    Returns:
        The data set and the personalizer.
    Raises:
        RampartError: the data set, the personalizer or another member is unknown or has wrong
            parameters.
    """
    from rampart_fl.shared.attacks.triggers import parse_trigger
    from rampart_fl.shared.learning.data.datasets import datasets
    from rampart_fl.shared.learning.data.partitions import partitions
    from rampart_fl.shared.learning.network.models import models
    from rampart_fl.shared.learning.training.objectives import parse_terms
    from rampart_fl.shared.learning.training.personalizers import personalizers
    from rampart_fl.shared.learning.training.schedules import schedules

    with plugins.record_lookups(experiment.packages):
        dataset = datasets.parse(experiment.data.dataset)
        personalizer = personalizers.parse(experiment.personalizer)
        partitions.parse(experiment.data.partition)
        models.parse(experiment.network)
        parse_terms(experiment.training.objective)
        schedules.parse(experiment.training.schedule)
        parse_trigger(experiment.evaluation.trigger)
    return dataset, personalizer


def build_plan(experiment: Experiment) -> "Plan":
    """Builds the stages that the server runs in every round."""
    from rampart_fl.shared.robust.engine import Plan
    from rampart_fl.shared.robust.server_step import ServerStep

    server = experiment.server
    with plugins.record_lookups(experiment.packages):
        return Plan.of(
            server.rule,
            server.detectors,
            server.customizer,
            ServerStep(learning_rate=server.learning_rate, momentum=server.momentum),
            server.calibrate,
            server.eviction,
            server.f,
        )
