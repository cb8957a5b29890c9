"""What the detector `challenge` remembers about clients.

Legend: J is the number of decoys, K the number of entries of a sketch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.evidence.betting import evidence
from rampart_fl.shared.robust.evidence.relays import NOTHING

NUMBERS = (
    "rounds",
    "limit",
    "trial",
    "seen",
    "rest",
    "waited",
    "length",
    "answered",
    "cleared",
    "group",
    "compared",
    "last_round",
    "due_round",
)
"""Names of the numbers that are remembered for every client."""
NEAR = 1e-5
"""Two starting models are treated as equal if their relative distance is at most this number."""
BLOCKS = ("average", "due_start", "due_shift")
"""Names of the tensors that are remembered for some clients."""


@dataclass
class TrialRecord:
    """What the detector remembers about one client.

    Args:
        limit: evidence above which the client is evicted.
        wealth: wealth of the bets on objections, one number for each expected share of objections.
        relayed: wealth of the bets on the client's answers to other clients' challenges.
        compared: number of rounds with a bet on an answer to other clients' challenges.
        group: number of the client's group; clients on trial that have sent similar uploads have
            the same number. A client has a group only while it is on trial, or exempt from trials
            after an acquittal; otherwise, the number is 0.
        last_round: the latest round in which the client took part.
        due_round: the round after which the challenge in `due_shift` was drawn.
        rounds: number of rounds in which the detector has bet on the client's answer.
        trial: remaining length of the trial, in rounds in which the client takes part.
        seen: number of the client's next rounds in which its latest copied upload is still
            remembered. Another copied upload in these rounds starts a trial. The number is 0 if no
            copied upload is remembered.
        rest: number of the client's next rounds in which copied uploads start no trial; 0 if there
            was no recent acquittal.
        answered: number of rounds of this trial in which the client's answer was judged.
        cleared: wealth that the detector has won in this trial by betting that the client answers
            like an honest client.
        waited: number of the client's rounds since the evidence against it first exceeded the
            limit; 0 if the evidence has not exceeded the limit.
        length: norm of the client's latest upload that did not start from a challenged model; 0 if
            there is no such upload.
        answer: the client's latest answer to a challenge; None if there is no answer.
        average: average (K,) of the sketches of the client's uploads.
        due_start: sketch (K,) of the client's starting model in its next round, if the client was
            challenged.
        due_shift: sketches (1 + J, K) of a challenge and its decoys; the model of `due_start`
            contains this challenge.
    """

    limit: float
    wealth: tuple[float, ...]
    relayed: tuple[float, ...] = NOTHING
    compared: int = 0
    group: int = 0
    last_round: int = 0
    due_round: int = 0
    rounds: int = 0
    trial: int = 0
    seen: int = 0
    rest: int = 0
    answered: int = 0
    cleared: float = 0.0
    waited: int = 0
    length: float = 0.0
    answer: float | None = None
    average: Tensor | None = field(default=None, repr=False)
    due_start: Tensor | None = field(default=None, repr=False)
    due_shift: Tensor | None = field(default=None, repr=False)

    @property
    def evidence(self) -> float:
        """Logarithm of the mean of two e-values: from the client's own answers, and from relays."""
        return log((exp(self.own_evidence) + exp(self.relay_evidence)) / 2)

    @property
    def own_evidence(self) -> float:
        """Logarithm of the e-value of the bets on objections to the client's own answers."""
        return evidence(self.wealth, self.rounds)

    @property
    def relay_evidence(self) -> float:
        """Logarithm of the e-value of the bets on answers to other clients' challenges."""
        return evidence(self.relayed, self.compared)

    @property
    def awaited(self) -> bool:
        """Whether the detector needs the client's next upload soon.

        The client is on trial, or its next copied upload would put it on trial.
        """
        return self.trial > 0 or (self.seen > 0 and not self.rest)

    def asked_JK(self, start_K: Tensor) -> Tensor | None:
        """The challenge and the decoys (1 + J, K) of an upload that started from a given model.

        Args:
            start_K: sketch of the model that the upload started from.
        Returns:
            None if the client was not challenged, or did not start from its challenged model.
        """
        if self.due_start is None:
            return None
        near = NEAR * max(float(start_K.norm()), float(self.due_start.norm()))
        return self.due_shift if float((start_K - self.due_start).norm()) <= near else None

    def sighted(self, copied: bool, rounds: int) -> None:
        """Updates the client's trial after another round in which the client took part.

        A second copied upload within `rounds` rounds starts a trial. Each further copied upload
        extends the trial. For `rest` rounds after an acquittal, a copied upload starts no
        trial of the client.

        >>> one = TrialRecord(limit=9.0, wealth=(0.0,))
        >>> [one.sighted(copied, 10) or one.trial for copied in (True, False, True, False)]
        [0, 0, 10, 9]
        """
        if self.rest:
            self.rest -= 1
            return
        if copied and (self.trial or self.seen):
            self.try_for(rounds)
        else:
            self.trial = max(0, self.trial - 1)
        self.seen = rounds if copied else max(0, self.seen - 1)

    def try_for(self, rounds: int) -> None:
        """Puts the client on trial for at least `rounds` rounds, even soon after an acquittal."""
        if not self.trial:
            self.answered, self.cleared = 0, 0.0
        self.trial, self.rest = max(self.trial, rounds), 0

    def acquit(self, rest: int) -> None:
        """Ends the trial; copied uploads start no new trial in the client's next `rest` rounds."""
        self.trial = self.seen = 0
        self.rest = rest


def from_state(state: State, shares: int) -> tuple[dict[str, TrialRecord], int]:
    """What a state contains about each client, and how many clients ever joined.

    Args:
        state: the state.
        shares: number of entries of the detector's option `expected`. If a state from an earlier
            version of Rampart has only one wealth per client, this wealth is used for every share.
    """
    state = State({name: held.cpu() for name, held in state.tensors.items()}, state.ids)
    numbers = {name: state.by_id(name) for name in NUMBERS}
    wealth, relayed, answers = (state.by_id(name) for name in ("wealth", "relayed", "answer"))
    blocks: dict[str, Mapping[str, Tensor]] = {name: state.by_id(name) for name in BLOCKS}
    known = {
        client: TrialRecord(
            limit=float(numbers["limit"][client]),
            wealth=tuple(wealth[client].expand(shares).tolist()),
            relayed=tuple(relayed[client].tolist()) if client in relayed else NOTHING,
            compared=int(numbers["compared"].get(client, 0)),
            group=int(numbers["group"].get(client, 0)),
            last_round=int(numbers["last_round"].get(client, 0)),
            due_round=int(numbers["due_round"].get(client, 0)),
            rounds=int(numbers["rounds"][client]),
            trial=int(numbers["trial"][client]),
            seen=int(numbers["seen"][client]),
            rest=int(numbers["rest"].get(client, 0)),
            answered=int(numbers["answered"].get(client, 0)),
            cleared=float(numbers["cleared"].get(client, 0)),
            waited=int(numbers["waited"][client]),
            length=float(numbers["length"][client]),
            answer=float(answers[client]) if client in answers else None,
            **{name: held.get(client) for name, held in blocks.items()},
        )
        for client in numbers["limit"]
    }
    return known, int(state.tensors.get("heard", torch.tensor(0)))


def to_state(known: Mapping[str, TrialRecord], joined: int) -> State:
    """The inverse of `from_state`."""
    clients = tuple(sorted(known))
    tensors = {
        name: torch.tensor([getattr(known[c], name) for c in clients], dtype=torch.float64)
        for name in NUMBERS
    }
    ids: dict[str, tuple[str, ...]] = dict.fromkeys((*NUMBERS, "wealth", "relayed"), clients)
    tensors["wealth"] = torch.tensor([known[c].wealth for c in clients], dtype=torch.float64)
    tensors["relayed"] = torch.tensor([known[c].relayed for c in clients], dtype=torch.float64)
    ids["answer"] = tuple(c for c in clients if known[c].answer is not None)
    tensors["answer"] = torch.tensor([known[c].answer for c in ids["answer"]], dtype=torch.float64)
    for name in BLOCKS:
        held: Sequence[str] = [c for c in clients if getattr(known[c], name) is not None]
        if held:
            ids[name] = tuple(held)
            tensors[name] = torch.stack([getattr(known[c], name) for c in held])
    tensors["heard"] = torch.tensor(joined)
    return State(tensors, ids)
