"""Several attacks in one run, one after another or together.

Legend: F attackers, D coordinates.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field, field_validator
from torch import Tensor

from rampart_fl.shared.attacks.base import LEVELS, Knowledge, KnowledgeLevel, ModelAttack
from rampart_fl.shared.attacks.model import attacks


@attacks.register("schedule")
class AttackSchedule(ModelAttack):
    """Runs all listed attacks that are active in the round.

    If several attacks are active in a round, they act in the listed order. Each attack works on the
    uploads of the previous attack.

    >>> import torch
    >>> change = AttackSchedule(
    ...     attacks=[
    ...         {"name": "sign_flip", "until_round": 5},
    ...         {"name": "model_replacement", "scale": 3, "from_round": 5},
    ...     ]
    ... )
    >>> [float(change.apply(torch.ones(1, 1), Knowledge(4, 1, round=r))) for r in (4, 5)]
    [-1.0, 3.0]
    """

    paper = "Rampart: a change of attack during a run"
    attacks: tuple[ModelAttack, ...] = Field(min_length=1)
    """The attacks: names, or TOML tables with `name` and parameters such as `from_round`."""

    @field_validator("attacks", mode="before")
    @classmethod
    def _parse(cls, specs: Sequence[Any]) -> tuple[ModelAttack, ...]:
        return tuple(attacks.parse(spec) for spec in specs)

    @property
    def asks_for(self) -> KnowledgeLevel:
        return max((attack.asks_for for attack in self.attacks), key=LEVELS.index)

    @property
    def uses_samples(self) -> bool:
        return any(attack.uses_samples for attack in self.attacks)

    @property
    def rejoins(self) -> bool:
        return any(attack.rejoins for attack in self.attacks)

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        out_FD = own_FD.clone()
        for attack in self.attacks:
            out_FD = attack.apply(out_FD, knowledge.limited_to(attack.asks_for))
        return out_FD

    def claim(self, numbers: dict[str, float], knowledge: Knowledge) -> dict[str, float]:
        for attack in self.attacks:
            numbers = attack.report(numbers, knowledge)
        return numbers
