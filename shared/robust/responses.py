"""How clients respond when their starting models move, and the memory needed to measure this.

Legend: H clients remembered, K numbers of a sketch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.betting import Bet

NUMBERS = ("wealth", "rounds", "limit", "longest")
"""Names of the numbers that are remembered for every client."""
NEAR = 1e-5
"""Two starting models count as the same if their distance relative to their length is below this.
"""


@dataclass(frozen=True)
class Response:
    """How a client's upload u reacted when its starting model w had moved.

    Δu and Δw are the differences from the client's last upload and last starting model.

    Args:
        correlation: -<Δu, Δw> / |Δu| |Δw|, positive if the client pulls the model back.
        strength: -<Δu, Δw> / |Δw|², 1 if one upload undoes the whole movement.
    """

    correlation: float
    strength: float


@dataclass
class Known:
    """What is remembered about one client.

    Args:
        limit: evidence above which the client is evicted.
        wealth: wealth of the bets that have begun.
        rounds: number of rounds that counted.
        longest: length of the client's longest upload.
        correlation: correlation of the client's last response, if there was one.
        last: sketches of the client's last upload and of the model that this upload started from.
    """

    limit: float
    wealth: float = 0.0
    rounds: int = 0
    longest: float = 0.0
    correlation: float | None = None
    last: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    @property
    def evidence(self) -> float:
        """Logarithm of the e-value, over the bets that have begun and those yet to begin."""
        return Bet.evidence(self.wealth, self.rounds)


def respond(upload_K: Tensor, start_K: Tensor, before_K: Tensor, from_K: Tensor) -> Response | None:
    """How an upload reacted when its starting model had moved; None if the model did not move.

    Args:
        upload_K, start_K: sketches of this upload and of the model that it started from.
        before_K, from_K: the same two sketches for the client's last upload.

    >>> start, target = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 3.0])
    >>> respond(0.5 * (target - start), start, 0.5 * target, torch.zeros(2))
    Response(correlation=1.0, strength=0.5)
    """
    way_K, change_K = start_K - from_K, upload_K - before_K
    way, change = float(way_K.norm()), float(change_K.norm())
    if not way > NEAR * max(float(start_K.norm()), float(from_K.norm())) or not isfinite(change):
        return None
    along = -float((change_K / max(change, 1e-300)) @ (way_K / way))
    return Response(max(-1.0, min(1.0, along)), min(along * change / way, 1e300))


def recalled(state: State) -> dict[str, Known]:
    """What a detector's state holds about each client, by client id."""
    # A state loaded from storage is on the same device as the models.
    state = State({name: held.cpu() for name, held in state.tensors.items()}, state.ids)
    numbers = {name: state.by_id(name) for name in NUMBERS}
    correlations = state.by_id("correlation")
    uploads, starts = state.by_id("upload"), state.by_id("start")
    return {
        client: Known(
            limit=float(numbers["limit"][client]),
            wealth=float(numbers["wealth"][client]),
            rounds=int(numbers["rounds"][client]),
            longest=float(numbers["longest"][client]),
            correlation=float(correlations[client]) if client in correlations else None,
            last=(uploads[client].double(), starts[client].double()) if client in uploads else None,
        )
        for client in numbers["limit"]
    }


def remembered(known: Mapping[str, Known], heard: int) -> State:
    clients = tuple(sorted(known))
    tensors = {
        name: torch.tensor([getattr(known[c], name) for c in clients], dtype=torch.float64)
        for name in NUMBERS
    }
    ids: dict[str, tuple[str, ...]] = dict.fromkeys(NUMBERS, clients)
    answered = {c: one.correlation for c, one in known.items() if one.correlation is not None}
    ids["correlation"] = tuple(sorted(answered))
    tensors["correlation"] = torch.tensor(
        [answered[c] for c in ids["correlation"]], dtype=torch.float64
    )
    traced = {c: one.last for c, one in known.items() if one.last is not None}
    if traced:
        ids["upload"] = ids["start"] = tuple(sorted(traced))
        for place, name in enumerate(("upload", "start")):
            tensors[name] = torch.stack([traced[c][place] for c in ids[name]]).float()
    tensors["heard"] = torch.tensor(heard)
    return State(tensors, ids)
