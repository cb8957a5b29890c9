"""How clients respond to movements of their starting models, and the state for these responses.

Legend: H clients remembered, A memories, J decoys, K numbers of a sketch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.robust.answers import Answer
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.betting import evidence
from rampart_fl.shared.robust.sequential import SUSPECT

NUMBERS = ("rounds", "limit", "longest", "length", "trials", "boldness", "calm")
"""Names of the numbers that are remembered for every client."""
PROOFS = ("answered", "exceeded")
"""Names of the bets on challenged rounds, whose wealth is remembered for every client."""
CALM = 6
"""After an upload that is too long, a suspect's challenges do not grow for this many rounds."""
NONE = 2.0
"""The number that represents a missing correlation in a stored state. If NaN represented it, equal
states would compare as different."""
NEAR = 1e-5
"""Two starting models are treated as equal if their distance, relative to their length, is at most
this number.
"""


STIFF = 0.01
"""If an upload changes by less than this multiple of the movement of its starting model, the upload
is treated as not reacting at all."""


PULLS = 0.3
"""Correlation above which the movement explains how an upload changed. If the model moved little
and the correlation is lower, a response may seem strong only because of noise in the upload."""


Start = Literal["usual", "challenged", "refused"]
"""The model that an upload started from. `usual`: the client was not challenged. `challenged`: the
model with the client's challenge. `refused`: another model, although the client was challenged."""


@dataclass(frozen=True)
class Response:
    """How a client's upload u reacted when its starting model w had moved.

    Δu is u minus a moving average of the client's earlier uploads. Δw is w minus the same average
    of the models from which those uploads started.

    Args:
        correlation: -<Δu, Δw> / (|Δu| |Δw|), positive if the client pulls the model back.
        strength: -<Δu, Δw> / |Δw|², 1 if one upload undoes the whole movement.
        steady: whether |Δu| is at least `STIFF` |Δw|, and at most the largest of these lengths:
            |u|, the length of the earlier uploads' average, and, if the correlation is above
            `PULLS`, |Δw|. Noise is not steady, because independent uploads of the same length
            differ by √2 times their length. A constant upload is not steady, because Δu is 0.
    """

    correlation: float
    strength: float
    steady: bool = True


@dataclass
class Past:
    """Averages over a client's earlier rounds, and the bets on responses relative to them.

    Args:
        wealth: wealth of the bets that have begun, one number for each expected share.
        correlation: correlation of the client's last response, if there was one.
        averages: averages of the sketches of the client's uploads, and of the models that these
            uploads started from.
    """

    wealth: tuple[float, ...]
    correlation: float | None = None
    averages: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def respond(self, upload_K: Tensor, start_K: Tensor, memory: float) -> Response | None:
        """The response of a new upload, which is then added to the averages.

        Args:
            upload_K, start_K: sketches of the upload and of the model that it started from.
            memory: weight of the old averages.
        """
        response = None
        if self.averages is not None:
            response = respond(upload_K, start_K, *self.averages)
        if response is not None:
            self.correlation = response.correlation
        self.average(upload_K, start_K, memory)
        return response

    def average(self, upload_K: Tensor, start_K: Tensor, memory: float) -> None:
        """Adds an upload and its starting model to the averages: a' = m a + (1 - m) x.

        An upload that is not finite is left out.

        >>> past = Past(wealth=(0.0,))
        >>> for upload in (1.0, 2.0):
        ...     past.average(torch.tensor([upload]), torch.tensor([0.0]), memory=0.75)
        >>> past.averages[0].item()
        1.25
        """
        if not bool(upload_K.isfinite().all() and start_K.isfinite().all()):
            return
        if self.averages is None:
            self.averages = (upload_K, start_K)
        else:
            uploads_K, starts_K = self.averages
            self.averages = (
                memory * uploads_K + (1 - memory) * upload_K,
                memory * starts_K + (1 - memory) * start_K,
            )


@dataclass
class Known:
    """What a detector remembers about one client.

    Args:
        limit: evidence above which the client is evicted.
        pasts: the client's pasts, one for each of the detector's memories.
        answered: wealth of the bets on low answers to challenges, one number for each expected
            share.
        exceeded: wealth of the bets that challenged uploads are too long or overshoot.
        rounds: number of rounds in which the detector has bet on objections.
        trials: number of rounds in which the client started from a challenge.
        boldness: factor by which the client's next challenge is longer than a first challenge.
        calm: number of challenged rounds since an upload was too long.
        longest: length of the client's longest upload that did not start from a challenged model.
        length: length of the client's last upload that did not start from a challenged model.
        due: sketches (2, K) of the challenged model that the client is to start from next, and of
            the challenge alone.
    """

    limit: float
    pasts: tuple[Past, ...]
    answered: tuple[float, ...]
    exceeded: tuple[float, ...]
    rounds: int = 0
    trials: int = 0
    boldness: float = 1.0
    calm: int = CALM
    longest: float = 0.0
    length: float = 0.0
    due: Tensor | None = field(default=None, repr=False)

    @property
    def suspicion(self) -> float:
        """Logarithm of the mean e-value of the bets on objections."""
        return evidence([won for past in self.pasts for won in past.wealth], self.rounds)

    @property
    def evidence(self) -> float:
        """Logarithm of the mean e-value of the bets on uploads that started from a challenge."""
        return evidence([*self.answered, *self.exceeded], self.trials)

    @property
    def suspected(self) -> bool:
        """Whether the client is a suspect."""
        return max(self.suspicion, self.evidence) > SUSPECT

    def answer(self, upload_K: Tensor, asked_JK: Tensor) -> Answer | None:
        """How an upload answered its challenge; None if the upload is not finite.

        Args:
            upload_K: sketch of the upload.
            asked_JK: the challenge, followed by the decoys (1 + J, K).
        """
        earlier = [past.averages[0] for past in self.pasts if past.averages is not None]
        if not earlier or not bool(upload_K.isfinite().all()):
            return None
        return Answer.of(upload_K, torch.stack(earlier), asked_JK)

    def started(self, start_K: Tensor) -> tuple[Start, Tensor | None]:
        """What an upload started from, and the sketch (K,) of its challenge if it started from one.

        The method also marks the client's challenge as no longer due.

        Args:
            start_K: sketch of the upload's starting model.
        """
        due_2K, self.due = self.due, None
        if due_2K is None:
            return "usual", None
        due_K, challenge_K = due_2K
        near = NEAR * max(float(start_K.norm()), float(due_K.norm()))
        if float((start_K.double() - due_K).norm()) <= near:
            return "challenged", challenge_K
        return "refused", None


def respond(upload_K: Tensor, start_K: Tensor, before_K: Tensor, from_K: Tensor) -> Response | None:
    """An upload's response to the movement of its starting model.

    The response is None if the starting model did not move, or if the upload is not finite.

    Args:
        upload_K, start_K: sketches of this upload and of the model that it started from.
        before_K, from_K: the averages of these two sketches over the client's earlier uploads.

    >>> start, target = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 3.0])
    >>> respond(0.5 * (target - start), start, 0.5 * target, torch.zeros(2))
    Response(correlation=1.0, strength=0.5, steady=True)
    """
    way_K, change_K = start_K - from_K, upload_K - before_K
    way, change = float(way_K.norm()), float(change_K.norm())
    if not way > NEAR * max(float(start_K.norm()), float(from_K.norm())) or not isfinite(change):
        return None
    along = -float((change_K / max(change, 1e-300)) @ (way_K / way))
    most = max(way if along > PULLS else 0.0, float(upload_K.norm()), float(before_K.norm()))
    steady = STIFF * way <= change <= most
    strength = min(along * change / way, 1e300)
    return Response(max(-1.0, min(1.0, along)), strength, steady)


def recalled(state: State, memories: int, shares: int) -> dict[str, Known]:
    """Reads what a detector's state contains about each client, keyed by client id.

    Args:
        state: the state.
        memories, shares: numbers of the detector's memories and expected shares. Earlier versions
            of Rampart stored only one past and one wealth per client. If the state contains only
            these, the past is used for every memory, and the wealth for every share.
    """
    # A state that was loaded from storage is on the models' device, not on the CPU.
    state = State({name: held.cpu() for name, held in state.tensors.items()}, state.ids)
    numbers = {name: state.by_id(name) for name in NUMBERS}
    wealth, correlations = state.by_id("wealth"), state.by_id("correlation")
    proofs = {name: state.by_id(name) for name in PROOFS}
    nothing = torch.zeros(shares)  # Earlier versions had no separate bets on challenges.
    uploads, starts, due = state.by_id("upload"), state.by_id("start"), state.by_id("due")
    asks = "decoys" in state.tensors  # Earlier versions stored no decoys; answers need them.

    def past(client: str, place: int) -> Past:
        averages = None
        if client in uploads:
            size = uploads[client].shape[-1]
            upload_AK, start_AK = (
                held[client].double().expand(memories, size) for held in (uploads, starts)
            )
            averages = (upload_AK[place], start_AK[place])
        correlation = NONE
        if client in correlations:
            correlation = float(correlations[client].expand(memories)[place])
        return Past(
            wealth=tuple(wealth[client].expand(memories, shares)[place].tolist()),
            correlation=None if correlation == NONE else correlation,
            averages=averages,
        )

    return {
        client: Known(
            limit=float(numbers["limit"][client]),
            pasts=tuple(past(client, place) for place in range(memories)),
            answered=tuple(proofs["answered"].get(client, nothing).tolist()),
            exceeded=tuple(proofs["exceeded"].get(client, nothing).tolist()),
            rounds=int(numbers["rounds"][client]),
            trials=int(numbers["trials"].get(client, 0)),
            boldness=float(numbers["boldness"].get(client, 1.0)),
            calm=int(numbers["calm"].get(client, CALM)),
            longest=float(numbers["longest"][client]),
            length=float(numbers["length"].get(client, numbers["longest"][client])),
            due=due[client].double() if asks and client in due else None,
        )
        for client in numbers["limit"]
    }


def remembered(known: Mapping[str, Known], heard: int, decoys_JK: Tensor | None = None) -> State:
    """The inverse of `recalled`.

    Args:
        known: what is remembered about each client, keyed by client id.
        heard: number of clients that ever joined.
        decoys_JK: sketches of the decoys of all challenges that are due.
    """
    clients = tuple(sorted(known))
    tensors = {
        name: torch.tensor([getattr(known[c], name) for c in clients], dtype=torch.float64)
        for name in NUMBERS
    }
    names = (*NUMBERS, *PROOFS, "wealth", "correlation")
    ids: dict[str, tuple[str, ...]] = dict.fromkeys(names, clients)
    for name in PROOFS:
        tensors[name] = torch.tensor(
            [getattr(known[c], name) for c in clients], dtype=torch.float64
        )
    tensors["wealth"] = torch.tensor(
        [[past.wealth for past in known[c].pasts] for c in clients], dtype=torch.float64
    )
    tensors["correlation"] = torch.tensor(
        [
            [NONE if past.correlation is None else past.correlation for past in known[c].pasts]
            for c in clients
        ],
        dtype=torch.float64,
    )
    traced = {
        c: [past.averages for past in one.pasts if past.averages is not None]
        for c, one in known.items()
        if all(past.averages is not None for past in one.pasts)
    }
    if traced:
        ids["upload"] = ids["start"] = tuple(sorted(traced))
        for place, name in enumerate(("upload", "start")):
            tensors[name] = torch.stack(
                [torch.stack([one[place] for one in traced[c]]) for c in ids[name]]
            ).float()
    challenged = {c: one.due for c, one in known.items() if one.due is not None}
    if challenged and decoys_JK is not None:
        tensors["decoys"] = decoys_JK.float()
        ids["due"] = tuple(sorted(challenged))
        tensors["due"] = torch.stack([challenged[c] for c in ids["due"]]).float()
    tensors["heard"] = torch.tensor(heard)
    return State(tensors, ids)
