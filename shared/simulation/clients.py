"""The clients of a simulated federation: all of them train, then attacks change uploads.

Legend: K clients of a round, F = 1 attacker, B honest clients, M attackers of the round,
D parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack, Knowledge, ModelAttack
from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.data.client_data import ClientData, client_data, poisoned
from rampart_fl.shared.learning.network.votes import vote
from rampart_fl.shared.learning.training.attacker_probes import initial_parameters, jacobian
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.evaluation import evaluate_many
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import CohortResult, merge, train
from rampart_fl.shared.learning.training.personalizers import Offers
from rampart_fl.shared.learning.training.privacy import STEPS
from rampart_fl.shared.protocol.reports import with_gap
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.runtime.device import to_device


@dataclass(frozen=True, eq=False)
class Uploads:
    """The uploads that the server receives: each client's update, sample count and metrics.

    Args:
        names: the clients, sorted.
        update_KD: the uploads.
        samples: the number of training samples that each client claims.
        metrics: all numbers that the clients report, keyed by client.
    """

    names: tuple[str, ...]
    update_KD: Tensor
    samples: tuple[int, ...]
    metrics: dict[str, dict[str, float]]


@dataclass(frozen=True)
class AttackerGroup:
    """Attackers that use the same model attack and the same data attack."""

    members: tuple[str, ...]
    attack: ModelAttack | None
    data_attack: DataAttack | None


@dataclass(eq=False)
class SimulatedClients:
    """Every client of the federation, honest or not."""

    experiment: Experiment
    learner: Learner
    names: list[str]
    groups: list[AttackerGroup]
    data: list[ClientData]
    personal: dict[str, Tensor]
    plan: Plan
    device: str
    server_update: Callable[[Tensor, int], Tensor | None] | None = None
    """Returns the server's own update for a global model and a round. Attackers with full knowledge
    use the server's own update."""
    _cohorts: dict[tuple[bool, ...], Cohort] = field(default_factory=dict)

    @staticmethod
    def of(experiment: Experiment, device: str) -> "SimulatedClients":
        """Loads the data, and initializes every personal model with the initial global model."""
        learner, names = Learner.of(experiment), experiment.client_names
        roles = list(zip(names, experiment.roles, strict=True))
        groups = [
            AttackerGroup(
                tuple(name for name, role in roles if role is table),
                None if table.attack is None else model_attacks.parse(table.attack),
                None if table.data_attack is None else data_attacks.parse(table.data_attack),
            )
            for table in experiment.attackers
        ]
        initial_KD = learner.initial_model().to(device).repeat(len(names), 1)
        return SimulatedClients(
            experiment,
            learner,
            names,
            groups,
            [client_data(experiment.data, k, experiment.seed) for k in range(len(names))],
            learner.first_states(initial_KD),
            build_plan(experiment),
            device,
        )

    def probe(self, names: Sequence[str], reference_D: Tensor, round_: int) -> dict[str, Tensor]:
        """The clients' answers (D,) to probes: their uploads after training from the reference."""
        if not names:
            return {}
        sent_KD = reference_D.repeat(len(names), 1)
        trained = self._train(names, sent_KD, round_, measure=False)
        if STEPS in trained.personal:  # A probe spends as much privacy budget as a round.
            self._keep(names, {STEPS: trained.personal[STEPS]})
        update_KD, _ = self.updates(names, trained, {}, sent_KD, reference_D, round_)
        return dict(zip(names, update_KD, strict=True))

    def train(
        self,
        names: Sequence[str],
        sent_KD: Tensor,
        global_D: Tensor,
        round_: int,
        offers: Offers = (),
        drawn: Sequence[str] | None = None,
        examined: int = 0,
    ) -> Uploads:
        """Trains these clients, updates their personal state, and returns their uploads.

        See `updates` for `drawn` and `examined`.
        """
        trained = self._train(names, sent_KD, round_, True, offers)
        self._keep(names, trained.personal)
        columns = {key: column.tolist() for key, column in trained.metrics.items()}
        metrics = {
            name: with_gap({key: column[k] for key, column in columns.items()})
            for k, name in enumerate(names)
        }
        update_KD, claims = self.updates(
            names, trained, metrics, sent_KD, global_D, round_, drawn, examined
        )
        return Uploads(
            tuple(names),
            update_KD,
            tuple(int(count) for count in columns["train_samples"]),
            claims,
        )

    def measure(self, names: Sequence[str], models_KD: Tensor) -> dict[str, dict[str, float]]:
        """Evaluates the given models and the personal models; returns metrics keyed by client."""
        slots = [self.names.index(name) for name in names]
        cohort = Cohort.of([self.data[slot] for slot in slots], device=self.device)
        personal = self._personal(slots)
        columns = evaluate_many(self.learner, cohort, models_KD, personal)
        lists = {key: column.tolist() for key, column in columns.items()}
        return {n: {key: column[k] for key, column in lists.items()} for k, n in enumerate(names)}

    def vote(self, voters: Sequence[Tensor]) -> dict[str, dict[str, float]]:
        """Lets these models (D,) vote on each client's test samples; returns results by client."""
        counts = vote(self.learner, Cohort.of(self.data, device=self.device), voters)
        columns = {name: column.tolist() for name, column in counts.items()}
        return {
            name: {key: column[k] for key, column in columns.items()}
            for k, name in enumerate(self.names)
        }

    @property
    def honest(self) -> list[int]:
        """Positions of the clients that belong to no group of attackers."""
        hostile = set(self.hostile)
        return [k for k, name in enumerate(self.names) if name not in hostile]

    @property
    def hostile(self) -> list[str]:
        """The attackers of all groups, in the order of their slots."""
        return sorted(name for group in self.groups for name in group.members)

    def _keep(self, names: Sequence[str], personal: Mapping[str, Tensor]) -> None:
        at = to_device([self.names.index(name) for name in names], self.device, torch.long)
        for key, tensor in personal.items():
            self.personal[key] = self.personal[key].index_copy(0, at, tensor)

    def personal_by_name(self) -> dict[str, dict[str, Tensor]]:
        """Each client's personal tensors."""
        return {
            name: {key: tensor[k] for key, tensor in self.personal.items()}
            for k, name in enumerate(self.names)
        }

    def _train(
        self,
        names: Sequence[str],
        sent_KD: Tensor,
        round_: int,
        measure: bool,
        offers: Offers = (),
    ) -> CohortResult:
        """Trains these clients; all clients with the same training settings train together."""
        own = [self._training(name, round_) for name in names]
        kinds = [one for k, one in enumerate(own) if one not in own[:k]]
        if len(kinds) == 1:
            return self._train_alike(kinds[0], names, sent_KD, round_, measure, offers)
        given, parts, order = list(offers), [], list[int]()
        for kind in kinds:
            some = [k for k, one in enumerate(own) if one == kind]
            at = to_device(some, sent_KD.device, torch.long)
            part = [(block_KD[at], there_K[at]) for block_KD, there_K in given]
            few = [names[k] for k in some]
            parts.append(self._train_alike(kind, few, sent_KD[at], round_, measure, part))
            order += some
        return merge(parts, order)

    def _training(self, name: str, round_: int) -> Training:
        """A client's training settings in a round."""
        usual = self.learner.training
        attack = next((g.data_attack for g in self.groups if name in g.members), None)
        if attack is None or not attack.active(round_, self.experiment.seed):
            return usual
        return attack.checked_training(usual)

    def _train_alike(
        self,
        training: Training,
        names: Sequence[str],
        sent_KD: Tensor,
        round_: int,
        measure: bool,
        offers: Offers,
    ) -> CohortResult:
        slots = [self.names.index(name) for name in names]
        cohort, seed = self.cohort(round_).pick(slots), self.experiment.seed
        learner = self.learner.trained_as(training)
        held_out = learner.personalizer.held_out
        batches = Batches.draw(cohort.train_K, names, training, seed, round_, held_out=held_out)
        personal = self._personal(slots)
        bad = set(self.hostile)
        hostile = [k for k, name in enumerate(names) if name in bad]
        return train(learner, cohort, batches, sent_KD, personal, measure, hostile, offers)

    def _personal(self, slots: Sequence[int]) -> dict[str, Tensor]:
        """The personal tensors (K, ...) of the clients in these slots."""
        at = to_device(slots, self.device, torch.long)
        return {key: tensor.index_select(0, at) for key, tensor in self.personal.items()}

    def cohort(self, round_: int) -> Cohort:
        """All clients' data in a round, poisoned by the data attacks of this round."""
        attacks = [group.data_attack for group in self.groups]
        key = tuple(a is not None and a.active(round_, self.experiment.seed) for a in attacks)
        if key not in self._cohorts:
            data, seed = list(self.data), self.experiment.seed
            positions = {name: position for position, name in enumerate(self.hostile)}
            for group, active in zip(self.groups, key, strict=True):
                if not active or group.data_attack is None:
                    continue
                for name in group.members:
                    slot, position = self.names.index(name), positions[name]
                    data[slot] = poisoned(data[slot], group.data_attack, seed, name, position)
            self._cohorts[key] = Cohort.of(data, device=self.device)
        return self._cohorts[key]

    def updates(
        self,
        names: Sequence[str],
        trained: CohortResult,
        metrics: Mapping[str, dict[str, float]],
        sent_KD: Tensor,
        global_D: Tensor,
        round_: int,
        drawn: Sequence[str] | None = None,
        examined: int = 0,
    ) -> tuple[Tensor, dict[str, dict[str, float]]]:
        """The uploads (K, D) and claims of a round, including the attackers' changed uploads.

        For attackers, the clients of the round are the clients in `drawn`; by default, the clients
        in `names`. Only attackers with full knowledge know about the `examined` clients.
        """
        update_KD, claims = trained.update_KD.clone(), dict(metrics)
        everyone = self.hostile
        hostile = [name for name in everyone if name in names]
        if not hostile:
            return update_KD, claims
        place = {name: k for k, name in enumerate(names)}
        full = self._full_knowledge(place, hostile, trained.update_KD, sent_KD, global_D, round_)
        if drawn is not None:
            met = len({*everyone} & {*drawn})
            full = replace(full, participants=len(drawn), attackers=met)
        counted = full.participants - examined
        public = replace(full, participants=counted, attackers=min(counted, full.attackers))
        roles = {name: group for group in self.groups for name in group.members}
        for first, name in enumerate(hostile):
            k, group = place[name], roles[name]
            own_FD = trained.update_KD[k : k + 1]
            poison = group.data_attack
            if poison is not None and poison.active(round_, self.experiment.seed):
                own_FD = poison.checked_upload(own_FD)
            if group.attack is not None:
                # An `agnostic` attacker does not know which other attackers were selected. Its
                # position (`first`) is therefore counted among all attackers of the experiment.
                alone = group.attack.asks_for == "agnostic"
                known = replace(
                    full if group.attack.asks_for == "full" else public,
                    first=everyone.index(name) if alone else first,
                    sent_FD=sent_KD[k : k + 1],
                    jacobian=jacobian(self.learner, self.data[self.names.index(name)]),
                ).limited_to(group.attack.asks_for)
                own_FD = group.attack.apply(own_FD, known)
                if name in claims:
                    claims[name] = group.attack.report(claims[name], known)
            update_KD[k] = own_FD[0]
        return update_KD, claims

    def _full_knowledge(
        self,
        place: Mapping[str, int],
        hostile: Sequence[str],
        update_KD: Tensor,
        sent_KD: Tensor,
        global_D: Tensor,
        round_: int,
    ) -> Knowledge:
        """All that attackers with full knowledge know about a round.

        Args:
            place: the row of each client of the round.
            hostile: the attackers of the round.
            update_KD: the updates, before attackers change theirs.
            sent_KD: the models from which the clients trained.
            global_D: the global model.
            round_: the number of the round.
        """
        honest = [k for name, k in place.items() if name not in hostile]
        met = [place[name] for name in hostile]
        honest_B = to_device(honest, self.device, torch.long)
        honest_BD, honest_sent_BD = update_KD[honest_B], sent_KD[honest_B]
        met_M = to_device(met, self.device, torch.long)
        colluders_MD, colluders_sent_MD = update_KD[met_M], sent_KD[met_M]
        attacks = [group.attack for group in self.groups if group.attack is not None]
        server_update_D = None
        if self.server_update is not None and any(a.asks_for == "full" for a in attacks):
            server_update_D = self.server_update(global_D, round_)
        return Knowledge(
            participants=len(place),
            attackers=len(hostile),
            # If a round has no honest clients, the attackers know only the updates that they
            # themselves computed honestly.
            honest_BD=honest_BD if honest else colluders_MD,
            honest_sent_BD=honest_sent_BD if honest else colluders_sent_MD,
            round=round_,
            seed=self.experiment.seed,
            reference_D=global_D,
            plan=self.plan,
            server_update_D=server_update_D,
            colluders_MD=colluders_MD,
            colluders_sent_MD=colluders_sent_MD,
            initial=initial_parameters(self.experiment),
        )
