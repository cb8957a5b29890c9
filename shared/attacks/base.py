"""The base classes of attacks, and `Knowledge`, which holds what an attacker knows.

Attacks work on updates. An update is the model after training minus the model before training, so
it points in the direction in which training moved the model. Data attacks change an attacker's
labelled samples before the attacker trains. Model attacks replace the attacker's honest update
after training.

Legend: F attackers whose uploads are crafted in one call, M attackers of the round, B known honest
updates, S samples, D coordinates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.families.registry import FamilyMember
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.seeding import generator

KnowledgeLevel = Literal["agnostic", "partial", "full"]
"""What an attacker knows. An `agnostic` attacker knows only its own data and update. A `partial`
attacker also knows the honest updates of the other attackers, which collude. A `full` attacker
knows every honest update of the round and the server's plan."""

LEVELS: tuple[KnowledgeLevel, ...] = ("agnostic", "partial", "full")
"""The levels, from the least knowledge to the most."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Everything that an attack may use in addition to the attackers' own honest updates.

    Args:
        participants: number n of clients that take part in the round, attackers included. Under the
            buffered policy, all clients that are not barred take part. In a probe, an attacker that
            knows which clients are probed counts only the probed clients.
        attackers: number m of attackers among these clients.
        honest_BD: honest updates that the attacker knows, one per row. With full knowledge, the
            rows are the updates of the benign clients. With partial knowledge, the rows are the
            updates of all attackers. For an agnostic attacker, `honest_BD` is None.
        round: the number of the round.
        seed: the experiment's seed; from it, `generator(name)` derives the seed of each named draw.
        reference_D: the global model of the round; only an attacker with full knowledge has it. An
            attacker may have trained from a different model (see `sent_FD`).
        plan: the stages of the server; only an attacker with full knowledge has them.
        level: the level of this knowledge; see `limited_to`.
        colluders_MD: honest updates of all attackers, in the order of their ids. If `colluders_MD`
            is None, attacks use the honest updates `own_FD` of the current call.
        first: position, among all attackers, of the attacker whose update is row 0 of `own_FD`. An
            attacker's random draws are seeded with its position. Random draws therefore differ
            between attackers, and do not depend on the process in which an attacker runs.
        sent_FD: for each of the F attackers, the model that the attacker trained from; None if all
            F attackers trained from `reference_D`.
        colluders_sent_MD: for each of the M attackers, the model that the attacker trained from;
            None if attackers share no knowledge.
        honest_sent_BD: for each row of `honest_BD`, the model from which the row's client trained.
        server_update_D: the update that the server computes on its root data; only an attacker
            with full knowledge has it.
        initial: function that draws the parameters (D,) of a randomly initialized model.
        jacobian: a function of parameters (D,) and a generator. The function estimates the squared
            norm of the Jacobian on the attacker's data, and returns the estimate and its gradient
            (D,).
    """

    participants: int
    attackers: int
    honest_BD: Tensor | None = None
    round: int = 0
    seed: int = 0
    reference_D: Tensor | None = None
    plan: Plan | None = None
    level: KnowledgeLevel = "full"
    colluders_MD: Tensor | None = None
    first: int = 0
    sent_FD: Tensor | None = None
    colluders_sent_MD: Tensor | None = None
    honest_sent_BD: Tensor | None = None
    server_update_D: Tensor | None = None
    initial: Callable[[torch.Generator], Tensor] | None = None
    jacobian: Callable[[Tensor, torch.Generator], tuple[Tensor, Tensor]] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.attackers <= self.participants:
            raise ConfigurationError(
                f"there cannot be {self.attackers} attackers among {self.participants} participants"
            )

    def limited_to(self, level: KnowledgeLevel) -> "Knowledge":
        """This knowledge, reduced to what an attacker with the given level may know.

        >>> everything = Knowledge(4, 1, torch.ones(3, 2), colluders_MD=torch.zeros(1, 2))
        >>> everything.limited_to("partial").honest_BD
        tensor([[0., 0.]])
        >>> everything.limited_to("agnostic").honest_BD is None
        True
        """
        if LEVELS.index(level) >= LEVELS.index(self.level):
            return self
        met = level == "partial"
        shared, sent = (self.colluders_MD, self.colluders_sent_MD) if met else (None, None)
        return replace(
            self,
            level=level,
            honest_BD=shared,
            honest_sent_BD=sent,
            colluders_MD=shared,
            colluders_sent_MD=sent,
            reference_D=None,
            plan=None,
            server_update_D=None,
        )

    def finite(self) -> "Knowledge":
        """This knowledge without the known honest updates that contain a NaN or an infinity.

        >>> known = Knowledge(3, 1, torch.tensor([[1.0], [torch.nan]])).finite()
        >>> known.honest_BD
        tensor([[1.]])
        """
        known_BD, sent_BD = self.honest_BD, self.honest_sent_BD
        if known_BD is None or (kept_BD := finite_rows(known_BD)) is known_BD:
            return self
        if sent_BD is not None and len(sent_BD) == len(known_BD):
            sent_BD = sent_BD[known_BD.isfinite().all(dim=1)]
        return replace(self, honest_BD=kept_BD, honest_sent_BD=sent_BD)

    def generator(self, name: str, *path: str | int) -> torch.Generator:
        """A new generator for one named random draw of this round."""
        return generator(self.seed, "attack", name, self.round, *path)


def finite_rows(updates_BD: Tensor) -> Tensor:
    """The rows with finite values only; if all rows are finite, the same tensor and not a copy."""
    finite_B = updates_BD.isfinite().all(dim=1)
    return updates_BD if bool(finite_B.all()) else updates_BD[finite_B]


class Attack(FamilyMember):
    """A hostile behaviour, and the rounds in which it is active; by default, all rounds.

    >>> from rampart_fl.shared.attacks.model import attacks
    >>> attack = attacks.build("sign_flip", from_round=5, until_round=8)
    >>> [round for round in range(10) if attack.active(round, seed=0)]
    [5, 6, 7]
    """

    from_round: int = Field(default=0, ge=0)
    """First round in which the attack is active."""
    until_round: int | None = Field(default=None, ge=0)
    """First round after the attack has ended; by default, the attack does not end."""
    probability: float = Field(default=1.0, ge=0, le=1)
    """Probability that the attack is active in a given round between `from_round` and
    `until_round`. For each round, one random draw decides for all attackers whether the attack is
    active."""

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Self:
        # If `until_round` equals `from_round`, the attack is never active. An attack that is never
        # active is a useful baseline.
        if self.until_round is not None and self.until_round < self.from_round:
            raise ValueError(f"until_round {self.until_round} is before from_round")
        return self

    def active(self, round: int, seed: int) -> bool:  # noqa: A002 - the field's word
        """Whether the attack is active in this round; if not, the attackers behave honestly."""
        if round < self.from_round or (self.until_round is not None and round >= self.until_round):
            return False
        if self.probability == 1:
            return True
        draw = torch.rand((), generator=generator(seed, "attack", self.name, "when", round))
        return float(draw) < self.probability


class ModelAttack(Attack, ABC):
    """Crafts the updates that the attackers of a round upload.

    An attacker's upload depends only on the attacker's own honest update and on the attacker's
    `Knowledge`. Attackers therefore upload the same updates whether they run in one process or in
    separate processes.
    """

    knowledge: ClassVar[KnowledgeLevel] = "agnostic"
    """The least knowledge that the attack needs."""
    identical: ClassVar[bool] = False
    """Whether all attackers upload the same vector."""

    @property
    def uses_samples(self) -> bool:
        """Whether an attacker uses its samples again after its honest training."""
        return False

    @property
    def rejoins(self) -> bool:
        """Whether an evicted attacker tries to rejoin under a new identity."""
        return False

    @property
    def asks_for(self) -> KnowledgeLevel:
        """The level of knowledge that this attack needs, which may depend on its parameters."""
        return self.knowledge

    def apply(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        """The uploads (F, D) that replace the honest updates `own_FD`; never a view of `own_FD`.

        An attacker calls this method after its honest training and before each upload, including
        answers to probes. The method returns a copy of `own_FD` if the round has no attackers, or
        if the attack is not active in the round. Known honest updates that contain a NaN or an
        infinity are left out. If the attack needs honest updates, but none is left, the method also
        returns a copy of `own_FD`.

        Raises:
            ValueError: `own_FD` is not a floating [F, D] tensor.
            PreconditionError: the attack needs honest updates, but no honest update is known.
        """
        if own_FD.ndim != 2 or not own_FD.is_floating_point():
            raise ValueError(
                f"updates must be a floating [F, D] tensor, not {own_FD.dtype} "
                f"of shape {tuple(own_FD.shape)}"
            )
        if not len(own_FD) or not knowledge.attackers or not self._shows(knowledge):
            return own_FD.clone()
        if self.asks_for != "agnostic" and (
            knowledge.honest_BD is None or not len(knowledge.honest_BD)
        ):
            raise PreconditionError(
                f"{self.name} needs {self.asks_for} knowledge, but no honest update is known: "
                f"n={knowledge.participants}, m={knowledge.attackers}"
            )
        if self.asks_for != "agnostic":
            knowledge = knowledge.finite()
            if knowledge.honest_BD is not None and not len(knowledge.honest_BD):
                return own_FD.clone()  # Training has diverged, so no finite update is known.
        with self.own_errors():
            crafted_FD = self.craft(own_FD, knowledge)
        return _checked(self, crafted_FD, own_FD)

    @abstractmethod
    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        """The uploads (F, D). `apply` has checked that F > 0 and that the knowledge suffices."""

    def report(self, numbers: Mapping[str, float], knowledge: Knowledge) -> dict[str, float]:
        """The numbers, such as the loss gap, that the attacker reports in its metadata."""
        if not knowledge.attackers or not self._shows(knowledge):
            return dict(numbers)
        with self.own_errors():
            return self.claim(dict(numbers), knowledge)

    def claim(self, numbers: dict[str, float], knowledge: Knowledge) -> dict[str, float]:
        """What the attacker reports while the attack is active; by default, the true numbers."""
        del knowledge
        return numbers

    def _shows(self, knowledge: Knowledge) -> bool:
        return self.active(knowledge.round, knowledge.seed)


class DataAttack(Attack, ABC):
    """Changes an attacker's samples; the attacker trains honestly on the changed samples."""

    @abstractmethod
    def apply(
        self, x: Tensor, y: Tensor, classes: int, draws: torch.Generator, attacker: int = 0
    ) -> tuple[Tensor, Tensor]:
        """The poisoned samples (S, ...) and labels (S,), as new tensors.

        The poisoned samples are drawn once per client, not once per epoch. A client trains on the
        poisoned samples while the attack is `active`, and on its true samples in all other rounds.

        Args:
            x: samples, one per row.
            y: the labels of the samples, integers from 0 to classes - 1.
            classes: number of classes of the task.
            draws: the generator for random choices.
            attacker: position of this client among the attackers.
        """

    def training(self, usual: Training) -> Training:
        """The training settings while the attack is active, derived from the usual settings."""
        return usual

    def checked_training(self, usual: Training) -> Training:
        """Calls `training`, and checks the result.

        Raises:
            ConfigurationError: the result is not a `Training` table.
        """
        with self.own_errors():
            changed: object = self.training(usual)
        if not isinstance(changed, Training):
            raise ConfigurationError(
                f"data attack {self.origin} changed the training settings to {changed!r}"
            )
        return changed

    def upload(self, own_FD: Tensor) -> Tensor:
        """The uploads (F, D). `own_FD` are the updates after training on poisoned samples.

        The result is never a view of `own_FD`.
        """
        return own_FD.clone()

    def checked_upload(self, own_FD: Tensor) -> Tensor:
        """Calls `upload`, and checks the shape of the result.

        Raises:
            ConfigurationError: the result does not have the shape of `own_FD`.
        """
        with self.own_errors():
            uploads_FD = self.upload(own_FD)
        return _checked(self, uploads_FD, own_FD)


def _checked(attack: Attack, crafted_FD: object, own_FD: Tensor) -> Tensor:
    """Checks the shape of the crafted updates; returns them in the honest updates' dtype."""
    if not isinstance(crafted_FD, Tensor):
        raise ConfigurationError(
            f"attack {attack.origin} crafted {crafted_FD!r} instead of updates"
        )
    if crafted_FD.shape != own_FD.shape:
        raise ConfigurationError(
            f"attack {attack.origin} crafted updates of shape {tuple(crafted_FD.shape)} instead "
            f"of {tuple(own_FD.shape)}"
        )
    return crafted_FD.to(own_FD)
