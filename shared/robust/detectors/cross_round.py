"""Cross-round consistency: whether a client's update resembles its previous accepted update.

Legend: M rows of the round, H clients with an accepted update, D coordinates, C coordinates of a
chunk.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.robust.base import Context, Detector, Rows, State, Verdict
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.state_memory import (
    aligned,
    carry_over_rows,
    positions,
    remembered,
    remembered_rows,
)
from rampart_fl.shared.runtime.device import to_device


@detectors.register("cross_round")
class CrossRound(Detector):
    """Rejects updates whose cosine to the client's last accepted update is not in [lower, upper].

    If the cosine is below `lower`, the client has reversed the direction of its update. If the
    cosine is above `upper`, the client repeats its update, as lazy and replaying clients do. A
    client's update is accepted if no earlier update of this client was accepted. A row whose
    metadata "fresh" is 0 is accepted, too: it repeats an update that was judged in an earlier
    round. For each client, the detector remembers only the latest accepted update. Therefore, it
    never compares an update with a rejected update. A zero update has cosine -1.
    """

    paper = "Han et al., Kick bad guys out, 2023 (cross-round check)"
    breakdown = "f < n in one round; over rounds, attackers that move models can reach others"
    complexity = "O(nd), keeps n·d"
    passes = "2, and 1 over the last updates of the same clients"
    remembers = True
    lower: float = Field(default=-0.5, ge=-1, le=1)
    """Lowest cosine that is accepted."""
    upper: float = Field(default=0.999999, ge=-1, le=1)
    """Highest cosine that is accepted."""
    decision: Literal["rejected", "evicted"] = "rejected"
    """What the detector asks for if a client's cosine is outside [`lower`, `upper`]."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lower > self.upper:
            raise ValueError(f"lower {self.lower} is above upper {self.upper}")
        return self

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        known = set(state.ids.get("last", ()))
        fresh = rows.fresh()
        verdicts = tuple(
            self._judge(client, score, new)
            for client, score, new in zip(
                rows.ids, _to_last(rows, state, known), fresh, strict=True
            )
        )
        accepted = [i for i, v in enumerate(verdicts) if v.decision == "accepted" and fresh[i]]
        return verdicts, _remember(rows, accepted, state)

    def _judge(self, client: str, score: float | None, new: bool) -> Verdict:
        if not new:
            return Verdict(client, "accepted", self.name, 1.0, self.lower, "judged before")
        if score is None:
            return Verdict(client, "accepted", self.name, 1.0, self.lower, "no earlier update")
        turned, repeats = score < self.lower, score > self.upper
        verb = "is below" if turned else "exceeds" if repeats else "is at least"
        threshold = self.upper if repeats else self.lower
        return Verdict(
            client=client,
            decision=self.decision if turned or repeats else "accepted",
            detector=self.name,
            score=score,
            threshold=threshold,
            reason=f"cosine to its last accepted update {score:.6g} {verb} {threshold:g}",
        )


def _to_last(rows: Rows, state: State, known: Collection[str]) -> list[float | None]:
    """Each row's cosine to the same client's previous accepted row.

    The value is None if the client has no previous accepted row, or if that row is zero.
    """
    cosines: list[float | None] = [None] * len(rows)
    met = [i for i, client in enumerate(rows.ids) if client in known]
    if not met:
        return cosines
    last = remembered_rows(state, "last", rows, [rows.ids[i] for i in met])
    here, width = to_device(met, rows.device, torch.long), aligned(rows)

    def products() -> Iterator[tuple[int, Tensor]]:
        both = zip(rows.chunks(width), last.chunks(width), strict=True)
        for (start, _, chunk_MC), (_, _, last_MC) in both:
            new_MC, old_MC = chunk_MC[here].double(), last_MC.double()
            pairs = ((new_MC, old_MC), (new_MC, new_MC), (old_MC, old_MC))
            yield start, torch.stack([(one * other).sum(dim=1) for one, other in pairs])

    mixed_M, new_M, old_M = rows.place.total(products(), (3, len(met)))
    cosines_M = (mixed_M / (new_M.sqrt() * old_M.sqrt())).nan_to_num(nan=-1.0).clamp(-1, 1)
    for i, cosine, old in zip(met, cosines_M.tolist(), old_M.tolist(), strict=True):
        cosines[i] = cosine if old else None
    return cosines


def _remember(rows: Rows, accepted: Sequence[int], state: State) -> State:
    """The state with every client's latest accepted update, including those of this round."""
    clients = [rows.ids[i] for i in accepted]
    block, at = carry_over_rows(state, "last", rows, clients, replaced=clients)
    where = positions(at, clients, rows.device)
    here = to_device(accepted, rows.device, torch.long)
    for start, stop, chunk_MC in rows.chunks():
        block.tensor[where, start:stop] = chunk_MC[here]
        for client in clients:
            block.release(at[client], slice(start, stop))
    return remembered("last", block, at)
