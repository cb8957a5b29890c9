"""Attacks that wrap another attack and add a behaviour to it.

Legend: F attackers, D coordinates.
"""

from typing import Any

from pydantic import Field, field_validator
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, KnowledgeLevel, ModelAttack
from rampart_fl.shared.attacks.model import attacks


class Wrapper(ModelAttack):
    """An attack that wraps another attack; the inner attack crafts the updates."""

    attack: ModelAttack = Field(default="sign_flip", validate_default=True)
    """The inner attack: a name, or a TOML table with its name and parameters."""

    @field_validator("attack", mode="before")
    @classmethod
    def _parse(cls, spec: Any) -> ModelAttack:
        return attacks.parse(spec)

    @property
    def asks_for(self) -> KnowledgeLevel:
        return self.attack.asks_for

    @property
    def uses_samples(self) -> bool:
        return self.attack.uses_samples

    @property
    def rejoins(self) -> bool:
        return self.attack.rejoins

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        return self.attack.apply(own_FD, knowledge)

    def claim(self, numbers: dict[str, float], knowledge: Knowledge) -> dict[str, float]:
        return self.attack.report(numbers, knowledge)
