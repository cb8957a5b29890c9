"""Draws random coordinates, independently of the device and of the order of the rows."""

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import Context


def coordinates(context: Context, name: str, dim: int, count: int) -> Tensor | None:
    """`count` distinct coordinates below `dim`, drawn uniformly and sorted; None if all are drawn.

    >>> drawn = coordinates(Context(seed=1), "test", 1000, 3)
    >>> len(drawn.unique()), bool((drawn < 1000).all())
    (3, True)
    """
    if count >= dim:
        return None
    draws = context.generator(name)
    if 2 * count >= dim:
        return torch.randperm(dim, generator=draws)[:count].sort().values
    # Duplicates are dropped and replaced by further draws, so every set of `count` coordinates is
    # equally likely. The cost depends on `count`, whereas the cost of a permutation would depend on
    # `dim`.
    drawn: Tensor = torch.unique(torch.randint(dim, (count,), generator=draws))
    while len(drawn) < count:
        more = torch.unique(torch.randint(dim, (count - len(drawn),), generator=draws))
        at = torch.searchsorted(drawn, more).clamp_(max=len(drawn) - 1)
        drawn = torch.cat([drawn, more[drawn[at] != more]]).sort().values
    return drawn
