"""What the detector `response` remembers about each client, and how the state stores it.

Legend: H clients remembered, A memories, S rounds with challenges that are due, J decoys, K numbers
of a sketch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.evidence.answers import Answer
from rampart_fl.shared.robust.evidence.betting import evidence
from rampart_fl.shared.robust.evidence.responses import NEAR, ClientAverages
from rampart_fl.shared.robust.evidence.sequential import DOUBT, SUSPECT
from rampart_fl.shared.robust.evidence.spot_checks import SpotChecks

NUMBERS = ("rounds", "limit", "longest", "length", "trials", "boldness", "calm")
"""Names of the numbers that are remembered for every client."""
PROOFS = ("answered", "exceeded")
"""Names of the bets on uploads that started from a challenged model. The detector remembers the
wealth of the bets with these names for every client."""
CALM = 6
"""After an upload that was too long, a suspect's challenges may grow again only after this number
of further uploads."""
NONE = 2.0
"""The number that represents a missing correlation in a stored state. NaN is unsuitable, because
equal states with NaN would compare as different."""
Start = Literal["usual", "challenged", "refused"]
"""The kind of model that an upload started from. `usual`: the client was not challenged.
`challenged`: the client was challenged, and started from the challenged model. `refused`: the
client was challenged, but started from another model."""


@dataclass(frozen=True, eq=False)
class DueChallenge:
    """A challenge that a client has not answered yet.

    Args:
        round: the round after which the challenge was drawn.
        start_K: sketch of the challenged model.
        challenge_K: sketch of the challenge alone.
        decoys_JK: sketches of the decoys, which were drawn like the challenge.
    """

    round: int
    start_K: Tensor = field(repr=False)
    challenge_K: Tensor = field(repr=False)
    decoys_JK: Tensor = field(repr=False)

    @property
    def asked_JK(self) -> Tensor:
        """Tensor (1 + J, K) with the challenge in the first row, then the decoys."""
        return torch.cat([self.challenge_K[None], self.decoys_JK]).double()

    def starts(self, start_K: Tensor) -> bool:
        """Whether `start_K` is the sketch of the challenged model."""
        near = NEAR * max(float(start_K.norm()), float(self.start_K.norm()))
        return float((start_K.double() - self.start_K).norm()) <= near


@dataclass
class ClientMemory:
    """What a detector remembers about one client.

    Args:
        limit: evidence above which the client is evicted.
        pasts: the client's averages and bets, one `ClientAverages` for each of the detector's
            memories.
        answered: wealth of the bets on low ranks of answers, one number for each expected share.
        exceeded: wealth of the bets that an upload from a challenged model is too long or
            overshoots.
        rounds: number of rounds in which the detector has bet on objections.
        trials: number of rounds in which the client started from a challenged model.
        boldness: norm of the client's next challenge, as a multiple of the norm of a first
            challenge.
        calm: how often the client has started from a challenged model since its latest upload that
            was too long.
        longest: largest norm of the client's uploads that did not start from a challenged model.
        length: norm of the client's latest upload that did not start from a challenged model.
        checks: what decides whether the client is spot-checked.
        due: the challenges that the client has not answered, oldest first. Under the buffered
            policy, several challenges can be due, because an upload can answer a challenge that is
            not the newest.
    """

    limit: float
    pasts: tuple[ClientAverages, ...]
    answered: tuple[float, ...]
    exceeded: tuple[float, ...]
    rounds: int = 0
    trials: int = 0
    boldness: float = 1.0
    calm: int = CALM
    longest: float = 0.0
    length: float = 0.0
    checks: SpotChecks = field(default_factory=SpotChecks)
    due: tuple[DueChallenge, ...] = ()

    @property
    def suspicion(self) -> float:
        """Logarithm of the mean e-value of the bets on objections."""
        return evidence([won for past in self.pasts for won in past.wealth], self.rounds)

    @property
    def evidence(self) -> float:
        """Logarithm of the mean e-value of the bets on uploads from challenged starting models."""
        return evidence([*self.answered, *self.exceeded], self.trials)

    @property
    def suspected(self) -> bool:
        """Whether the client is a suspect."""
        return max(self.suspicion, self.evidence) > SUSPECT

    @property
    def doubtful(self) -> bool:
        """Whether the client is a suspect, or may soon become one."""
        return max(self.suspicion, self.evidence) > DOUBT

    def answer(self, upload_K: Tensor, asked_JK: Tensor) -> Answer | None:
        """How an upload answered its challenge; None if no answer can be computed.

        No answer can be computed if the upload is not finite, or if there is no earlier upload.

        Args:
            upload_K: sketch of the upload.
            asked_JK: tensor (1 + J, K) with the challenge in the first row, then the decoys.
        """
        earlier = [past.averages[0] for past in self.pasts if past.averages is not None]
        if not earlier or not bool(upload_K.isfinite().all()):
            return None
        return Answer.of(upload_K, torch.stack(earlier), asked_JK)

    def started(self, start_K: Tensor, round_: int) -> tuple[Start, DueChallenge | None]:
        """The kind of an upload's starting model, and the challenge if the model contained one.

        The method also drops all due challenges of the client.

        Args:
            start_K: sketch of the upload's starting model.
            round_: the round for which the server asked for the upload.
        """
        due, self.due = self.due, ()
        for one in due:
            if one.round == round_ - 1:
                return ("challenged", one) if one.starts(start_K) else ("refused", None)
        return "usual", None


def from_state(state: State, memories: int, shares: int) -> dict[str, ClientMemory]:
    """Reads what a detector's state contains about each client, keyed by client id.

    Args:
        state: the state.
        memories: number of entries of the detector's option `memories`. If an earlier version of
            Rampart stored the averages of only one memory, these averages are used for every
            memory.
        shares: number of entries of the detector's option `expected`. If an earlier version of
            Rampart stored the wealth of only one bet, this wealth is used for every share.
    """
    # A state that was loaded from storage is on the models' device, not on the CPU.
    state = State({name: held.cpu() for name, held in state.tensors.items()}, state.ids)
    numbers = {name: state.by_id(name) for name in NUMBERS}
    wealth, correlations = state.by_id("wealth"), state.by_id("correlation")
    proofs = {name: state.by_id(name) for name in PROOFS}
    nothing = torch.zeros(shares)  # Earlier versions of Rampart had no separate bets on challenges.
    uploads, starts, due = state.by_id("upload"), state.by_id("start"), _recalled_due(state)
    checks = state.by_id("checks")  # Earlier versions of Rampart had no spot checks.

    def past(client: str, place: int) -> ClientAverages:
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
        return ClientAverages(
            wealth=tuple(wealth[client].expand(memories, shares)[place].tolist()),
            correlation=None if correlation == NONE else correlation,
            averages=averages,
        )

    return {
        client: ClientMemory(
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
            checks=SpotChecks(*checks[client].tolist()) if client in checks else SpotChecks(),
            due=due.get(client, ()),
        )
        for client in numbers["limit"]
    }


def _recalled_due(state: State) -> dict[str, tuple[DueChallenge, ...]]:
    """The challenges that are due, keyed by client id."""
    if "decoys" not in state.tensors:  # Earlier versions of Rampart stored no decoys.
        return {}
    decoys_SJK = state.tensors["decoys"].double()
    size = decoys_SJK.shape[-1]
    # Earlier versions of Rampart stored the challenges of only one round, without the round's
    # number.
    decoys_SJK = decoys_SJK.reshape(-1, decoys_SJK.shape[-2], size)
    rounds = state.tensors.get("asked", torch.tensor([-1])).tolist()
    return {
        client: tuple(
            DueChallenge(round_, start_K, challenge_K, decoys_JK)
            for round_, (start_K, challenge_K), decoys_JK in zip(
                rounds, due_S2K.double().reshape(-1, 2, size), decoys_SJK, strict=True
            )
            if bool(challenge_K.any())
        )
        for client, due_S2K in state.by_id("due").items()
    }


def to_state(known: Mapping[str, ClientMemory], joined: int) -> State:
    """The inverse of `from_state`.

    Args:
        known: what is remembered about each client, keyed by client id.
        joined: number of clients that have ever joined.
    """
    clients = tuple(sorted(known))
    tensors = {
        name: torch.tensor([getattr(known[c], name) for c in clients], dtype=torch.float64)
        for name in NUMBERS
    }
    names = (*NUMBERS, *PROOFS, "wealth", "correlation", "checks")
    ids: dict[str, tuple[str, ...]] = dict.fromkeys(names, clients)
    for name in PROOFS:
        tensors[name] = torch.tensor(
            [getattr(known[c], name) for c in clients], dtype=torch.float64
        )
    tensors["checks"] = torch.tensor(
        [astuple(known[c].checks) for c in clients], dtype=torch.float64
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
    ids["due"] = tuple(client for client in clients if known[client].due)
    if ids["due"]:
        tensors |= _stored_due([known[client].due for client in ids["due"]])
    else:
        del ids["due"]
    tensors["heard"] = torch.tensor(joined)
    return State(tensors, ids)


def _stored_due(due: Sequence[tuple[DueChallenge, ...]]) -> dict[str, Tensor]:
    """The tensors that store due challenges; the argument `due` has one item for each client.

    `asked` (S,) contains the numbers of the rounds after which the challenges were drawn. `decoys`
    (S, J, K) contains the decoys of each round, which all clients share. For each client and round,
    the tensor `due` (clients, S, 2, K) contains two sketches: first of the challenged model, then
    of the challenge. Both sketches are zero if there is no challenge.
    """
    decoys = {one.round: one.decoys_JK for of in due for one in of}
    rounds = sorted(decoys)
    due_HS2K = torch.zeros(len(due), len(rounds), 2, decoys[rounds[0]].shape[-1])
    for place, of in enumerate(due):
        for one in of:
            due_HS2K[place, rounds.index(one.round)] = torch.stack([one.start_K, one.challenge_K])
    return {
        "asked": torch.tensor(rounds),
        "decoys": torch.stack([decoys[round_] for round_ in rounds]).float(),
        "due": due_HS2K,
    }
