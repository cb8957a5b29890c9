"""Random draws for attackers; the draws do not depend on the process in which an attacker runs.

Legend: D coordinates.
"""

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge


def per_attacker(knowledge: Knowledge, name: str, count: int) -> list[torch.Generator]:
    """One generator for each of `count` attackers.

    Each generator is seeded with the attacker's position among all attackers.
    """
    return [knowledge.generator(name, knowledge.first + f) for f in range(count)]


def normal(dim: int, draws: torch.Generator) -> Tensor:
    """Standard normal numbers (D,) in float64."""
    return torch.randn(dim, generator=draws, dtype=torch.float64)


def uniform(low_D: Tensor, high_D: Tensor, draws: torch.Generator) -> Tensor:
    """Numbers (D,) drawn uniformly between two bounds, in float64."""
    share_D = torch.rand(len(low_D), generator=draws, dtype=torch.float64).to(low_D.device)
    return low_D + (high_D - low_D) * share_D
