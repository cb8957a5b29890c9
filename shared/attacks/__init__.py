"""Attacks by hostile clients, which change their own data (`.data`) or updates (`.model`).

The function `craft` runs a model attack in one call. A `Knowledge` object holds everything that an
attack may know. Code that runs hostile clients belongs in `services/attacker` and in
`shared/simulation`.

Legend: N known honest updates, F attackers, D coordinates.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import PreconditionError


def craft(
    name: str,
    honest_ND: Tensor,
    n: int,
    m: int,
    *,
    own_D: Tensor | None = None,
    seed: int = 0,
    at_round: int = 0,
    sent_D: Tensor | None = None,
    initial: Callable[[torch.Generator], Tensor] | None = None,
    jacobian: Callable[[Tensor, torch.Generator], tuple[Tensor, Tensor]] | None = None,
    **parameters: Any,
) -> Tensor:
    """The update that a round's first attacker uploads.

    Args:
        name: the name of a model attack.
        honest_ND: the honest updates that the attackers know, one per row.
        n: the number of participants of the round, attackers included.
        m: the number of attackers among the participants; if m is 0, `own_D` is returned.
        own_D: the honest update of each attacker (the same for all of them); by default, the mean
            of `honest_ND`.
        seed: the seed of the random draws.
        at_round: the number of the round.
        sent_D: the model that the attackers trained from; zeros by default.
        initial: function that draws the parameters (D,) of a randomly initialized model. The
            default draws each parameter uniformly between -1/√D and 1/√D, as torch does for a
            layer with D inputs.
        jacobian: as in `Knowledge`. The default Jacobian is 0 everywhere. With the default
            Jacobian, `jaa` uploads the same update as `lie`.
        parameters: the parameters of the attack.
    Returns:
        The upload (D,), in the dtype of `own_D`.
    Raises:
        UnknownMember, ConfigurationError: there is no such attack, or a parameter is wrong.
        PreconditionError: `honest_ND` is empty, but the attack or the default of `own_D` needs an
            honest update.
        ValueError: `honest_ND` is not a floating-point tensor of shape [N, D].

    >>> craft("ipm", torch.tensor([[1.0, 0.0], [3.0, 2.0]]), n=20, m=6, epsilon=2)
    tensor([-4., -2.])
    """
    attack = attacks.build(name, **parameters)
    if honest_ND.ndim != 2 or not honest_ND.is_floating_point():
        raise ValueError(
            f"honest updates must be a floating [N, D] tensor, not {honest_ND.dtype} "
            f"of shape {tuple(honest_ND.shape)}"
        )
    if own_D is None and not len(honest_ND):
        raise PreconditionError("no honest update is known, so own_D has no default")
    own_D = honest_ND.mean(dim=0) if own_D is None else own_D
    own_FD = own_D.expand(max(m, 1), -1)
    agnostic = attack.asks_for == "agnostic"
    start_D = torch.zeros_like(own_D) if sent_D is None else sent_D
    sent_FD = start_D.expand_as(own_FD)
    knowledge = Knowledge(
        participants=n,
        attackers=m,
        honest_BD=None if agnostic else honest_ND,
        colluders_MD=None if agnostic else own_FD,
        colluders_sent_MD=None if agnostic else sent_FD,
        level=attack.asks_for,
        seed=seed,
        round=at_round,
        sent_FD=sent_FD,
        initial=initial or _layer(len(own_D)),
        jacobian=jacobian or _stable,
    )
    return attack.apply(own_FD, knowledge)[0].clone()


def _layer(dim: int) -> Callable[[torch.Generator], Tensor]:
    return lambda draws: (2 * torch.rand(dim, generator=draws) - 1) / math.sqrt(dim)


def _stable(parameters_D: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    del draws
    return parameters_D.new_zeros(()), torch.zeros_like(parameters_D)
