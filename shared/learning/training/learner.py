"""The objects that a client trains with: network, objective, optimizer, personalizer.

Legend: K clients, D parameters.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rampart_fl.shared.attacks.triggers import Backdoor, parse_trigger
from rampart_fl.shared.experiment.schema import Experiment, Training
from rampart_fl.shared.experiment.start import Start
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.starting_model import read_start
from rampart_fl.shared.learning.network.vector import build_module, flatten
from rampart_fl.shared.learning.training import personalizer_calls
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.objectives import Objective, parse_terms
from rampart_fl.shared.learning.training.personalizers import Personalizer, personalizers
from rampart_fl.shared.learning.training.privacy import STEPS, PrivateTask, check_privacy
from rampart_fl.shared.learning.training.schedules import Schedule, schedules
from rampart_fl.shared.learning.training.scoring import SCORINGS, Scoring
from rampart_fl.shared.learning.training.task import LocalTask
from rampart_fl.shared.modelspec import ModelSpec

CONSTANT = schedules.build("constant")


@dataclass(frozen=True, eq=False)
class Learner:
    """The objects that a client uses to train and evaluate, built from its experiment."""

    network: Stacked
    personalizer: Personalizer
    training: Training
    trigger: Backdoor | None = None
    """The backdoor whose success is measured, if there is one."""
    terms: tuple[Objective, ...] = ()
    """The terms that the objective has in addition to the mean loss."""
    scoring: Scoring = SCORINGS["classification"]
    """The loss and the score of the data set's task."""
    schedule: Schedule = CONSTANT
    """How the learning rate changes from round to round."""
    rounds: int = 1
    """Number of rounds of the experiment."""
    start: Start | None = None
    """Where the first global model comes from, if it is not drawn from the seed."""
    hostile: bool = False
    """Whether this learner belongs to an attacker, which trains without objective terms or
    noise."""

    @staticmethod
    def of(experiment: Experiment) -> "Learner":
        """Builds the learner that an experiment defines."""
        network = Stacked(build_module(experiment), models.parse(experiment.network))
        personalizer = personalizers.parse(experiment.personalizer)
        personalizer_calls.check(personalizer, network.module, network.spec)
        check_privacy(experiment.training.privacy, network.module, personalizer)
        return Learner(
            network,
            personalizer,
            experiment.training,
            parse_trigger(experiment.evaluation.trigger),
            parse_terms(experiment.training.objective),
            SCORINGS[datasets.parse(experiment.data.dataset).task],
            schedules.parse(experiment.training.schedule),
            experiment.rounds,
            experiment.start,
        )

    @property
    def spec(self) -> ModelSpec:
        """The model's tensors."""
        return self.network.spec

    def initial_model(self) -> Tensor:
        """The first global model (D,)."""
        if self.start is not None:
            return read_start(self.start, self.spec)
        return flatten(self.network.module)

    def first_states(self, initial_KD: Tensor) -> dict[str, Tensor]:
        """The initial value of the state (K, ...) that clients keep between rounds."""
        state = personalizer_calls.first_state(self.personalizer, initial_KD)
        if self.training.privacy is not None:
            state[STEPS] = initial_KD.new_zeros(len(initial_KD), dtype=torch.float64)
        return state

    def first_state(self, initial_D: Tensor) -> dict[str, Tensor]:
        """`first_states` for one client, without the leading dimension K."""
        stacked = self.first_states(initial_D.unsqueeze(0))
        return {name: tensor[0].clone() for name, tensor in stacked.items()}

    def task(
        self,
        cohort: Cohort,
        batches: Batches,
        received_KD: Tensor,
        step: int,
        hostile_K: Tensor | None = None,
        clients_K: Tensor | None = None,
    ) -> LocalTask:
        """The task of one training step, in a round that began with the models `received_KD`.

        Args:
            cohort: the clients' data.
            batches: the round's batches, which also determine the step's random numbers.
            received_KD: the models as received.
            step: number of the step in the round, from 0.
            hostile_K: the clients that train without the objective's terms and without noise.
            clients_K: see `LocalTask`.
        """
        kind = LocalTask if self.training.privacy is None else PrivateTask
        return kind(
            self.network,
            self.scoring,
            self.training,
            () if self.hostile else self.terms,
            cohort,
            received_KD,
            batches.draws(step),
            hostile_K,
            clients_K,
            rate=self.schedule.checked_share(batches.round, self.rounds),
        )

    def trained_as(self, training: Training) -> "Learner":
        """A copy with other training settings, or this learner itself if the settings are equal."""
        return self if training == self.training else replace(self, training=training)

    def as_attacker(self) -> "Learner":
        """The learner of an attacker, which trains without objective terms or privacy noise."""
        return replace(self, hostile=True)
