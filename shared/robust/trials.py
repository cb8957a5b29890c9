"""What is remembered of clients that are, or may be, on trial for sending copies.

Legend: J decoys, K numbers of a sketch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.betting import Bet

NUMBERS = ("wealth", "rounds", "limit", "trial", "waited", "length")
"""What is kept of every client, one number each."""
BLOCKS = ("upload", "shift", "due_start", "due_shift")
"""What is kept of some clients, one tensor each."""


@dataclass
class Known:
    """What is remembered of one client.

    Args:
        limit: evidence above which it is evicted.
        wealth: of the bets that have begun.
        rounds: rounds that counted.
        trial: rounds of its own that it is still on trial for.
        waited: rounds of its own since its evidence first exceeded the limit; 0 before.
        length: of its last upload from a model that was not changed; 0 before.
        answer: its last answer to a challenge.
        upload: sketch (K,) of its last upload.
        shift: challenge and decoys (1 + J, K) of the model that its last upload started from.
        due_start: sketch (K,) of the challenged model that it may start from next.
        due_shift: that model's challenge and decoys (1 + J, K).
    """

    limit: float
    wealth: float = 0.0
    rounds: int = 0
    trial: int = 0
    waited: int = 0
    length: float = 0.0
    answer: float | None = None
    upload: Tensor | None = field(default=None, repr=False)
    shift: Tensor | None = field(default=None, repr=False)
    due_start: Tensor | None = field(default=None, repr=False)
    due_shift: Tensor | None = field(default=None, repr=False)

    @property
    def evidence(self) -> float:
        """Logarithm of the e-value: bets that have begun, and those that are still to begin."""
        return Bet.evidence(self.wealth, self.rounds)


def recalled(state: State) -> tuple[dict[str, Known], int]:
    """What a state holds of every client, and how many clients were ever heard of."""
    state = State({name: held.cpu() for name, held in state.tensors.items()}, state.ids)
    numbers = {name: state.by_id(name) for name in NUMBERS}
    answers = state.by_id("answer")
    blocks: dict[str, Mapping[str, Tensor]] = {name: state.by_id(name) for name in BLOCKS}
    known = {
        client: Known(
            limit=float(numbers["limit"][client]),
            wealth=float(numbers["wealth"][client]),
            rounds=int(numbers["rounds"][client]),
            trial=int(numbers["trial"][client]),
            waited=int(numbers["waited"][client]),
            length=float(numbers["length"][client]),
            answer=float(answers[client]) if client in answers else None,
            **{name: held.get(client) for name, held in blocks.items()},
        )
        for client in numbers["limit"]
    }
    return known, int(state.tensors.get("heard", torch.tensor(0)))


def remembered(known: Mapping[str, Known], heard: int) -> State:
    """The inverse of `recalled`."""
    clients = tuple(sorted(known))
    tensors = {
        name: torch.tensor([getattr(known[c], name) for c in clients], dtype=torch.float64)
        for name in NUMBERS
    }
    ids: dict[str, tuple[str, ...]] = dict.fromkeys(NUMBERS, clients)
    ids["answer"] = tuple(c for c in clients if known[c].answer is not None)
    tensors["answer"] = torch.tensor([known[c].answer for c in ids["answer"]], dtype=torch.float64)
    for name in BLOCKS:
        held: Sequence[str] = [c for c in clients if getattr(known[c], name) is not None]
        if held:
            ids[name] = tuple(held)
            tensors[name] = torch.stack([getattr(known[c], name) for c in held])
    tensors["heard"] = torch.tensor(heard)
    return State(tensors, ids)
