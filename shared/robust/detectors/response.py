"""The default detector: it checks that clients counteract the model's movements, as training does.

Legend: M rows of the round, H clients remembered, J decoys, K numbers of a sketch, D coordinates.
"""

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.robust import challenges, linalg, suspects
from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.objections import (
    Objection,
    Responses,
    Upload,
    Usual,
    acceptable,
    agreements,
    objection_to,
    pushes,
    tells,
    typical,
    why,
)
from rampart_fl.shared.robust.responses import Known, Past, Start, recalled, remembered
from rampart_fl.shared.robust.sequential import SUSPECT, SequentialDetector, Share
from rampart_fl.shared.robust.sketch import Traces

DEVIATIONS = 3.0
"""A response is turned (see `ResponseDetector`) only if its correlation is below 0 by more than
this many standard deviations. The standard deviation is that of the correlation of two random
directions."""
Memory = Annotated[float, Field(ge=0, lt=1)]


@detectors.register("response")
class ResponseDetector(SequentialDetector, challenges.Challenger):
    """Evicts clients whose updates repeatedly react to the model's movements unlike training.

    Local training pulls a model towards parameters that fit the client's data. If the model that a
    client starts from moves by Δw, the client's update changes by Δu = -A Δw plus noise. For K
    steps of size η on a loss with curvature H, the matrix A = I - (I - ηH)^K is positive. Training
    therefore makes <Δu, Δw> negative, for any data, any number of samples and any number of steps.
    A client that uploads reversed updates makes <Δu, Δw> positive. The detector compares a client
    with itself, not with other clients, so it does not penalize rare data.

    Δw and Δu are differences from the client's last round, and from moving averages over its former
    rounds (`memories`). If the model moves little, differences from averages are more informative:
    the model is further from its average, and an average of uploads has less noise. The detector
    bets on both kinds of differences, because the mean of their e-processes is an e-process, too.

    The detector objects to a client in a round for any of three reasons:
    - The client's response is turned: the correlation of -Δu and Δw is below `turned`, and lower
      than chance can explain for two random directions of the same dimension. This reason applies
      only in rounds in which at least half of the clients have a correlation of `informative` or
      more, because early in training the loss may have negative curvature.
    - The client overshoots: the strength of its response, -<Δu, Δw> / |Δw|², is above `overshoot`,
      and its upload is more than `stretched` times as long as the median client's longest upload.
    - The client's upload is too long (`typical`), and does not come from honest training with far
      more data: the upload is not finite, its strength is above `overshoot`, Δu is longer than the
      uploads that it compares (as for pure noise), the upload does not change at all, or the
      strength is below -`overshoot` and the upload does not point in the direction of others.

    Evidence is the logarithm of an e-process over these objections
    (`rampart_fl.shared.robust.betting`). The detector assumes an upper bound on the probability of
    an objection to an honest client, given all earlier rounds. The bound is `tolerated` in rounds
    in which responses are informative, and `tolerated_long` in all other rounds. Under this
    assumption, the probability that any honest client is ever evicted is below `level`, for any
    number of rounds and for any clients that join the federation. An objection multiplies the
    wealth of a bet that expects a share q of objections by q / `tolerated`.

    A client whose evidence is above ln 20 is a suspect. Where a client's loss has negative
    curvature, the responses of honest training are turned, too, perhaps for many rounds. A suspect
    is therefore challenged (`challenges`): a random change δ is added to the model from which it
    starts. The detector then bets only on rounds in which the suspect started from a challenge. In
    such a round, the response is turned if the answer -<Δu, δ> / |δ| is among the lowest: at most a
    share `tolerated` of the challenge and its `decoys` have such low answers. Decoys are drawn like
    δ, but sent to nobody. If an upload does not depend on δ at all, the probability of this
    objection is at most `tolerated`. If the upload undoes part of δ, the probability is lower.

    An upload is rejected in this round if it is too long, even without an objection. From its
    second upload on, a client without objections may exceed the limit on lengths by up to a factor
    of five. So may a client that is no suspect and whose response is turned, if its upload points
    in the direction of other clients' uploads. A suspect's upload is also rejected if it did not
    start from the challenge, if the detector objects to it, or if its response to the whole
    movement, challenge included, is turned.

    An honest client is judged by its own uploads. Colluders influence this verdict only through the
    model that the client receives; the medians only from half of the clients on. Copies of an
    honest update react to the model like this update; the detector `challenge` finds them.

    >>> traces = Traces(torch.tensor([[1.0], [1.1], [40.0]]), torch.zeros(3, 1))
    >>> rows = Rows.of(traces.upload_MK, traces=traces)
    >>> verdicts, _ = ResponseDetector().apply(rows, State(), Context())
    >>> [verdict.decision for verdict in verdicts]
    ['accepted', 'accepted', 'rejected']
    """

    paper = (
        "Waudby-Smith and Ramdas, Estimating means by betting, 2023 (e-processes); our statistic"
    )
    breakdown = "none: it judges each client alone, but colluders move the model it starts from"
    complexity = "O(nd), keeps n sketches; n suspects: O(n²d) for their models"
    own = False
    tolerated: float = Field(default=0.15, gt=0, lt=1)
    """Largest probability of an objection to an honest client in a round in which responses are
    informative."""
    tolerated_long: float = Field(default=0.02, gt=0, lt=1)
    """The same probability for all other rounds, in which the detector does not object to turned
    responses."""
    expected: tuple[Share, ...] = Field(default=(0.35, 0.6, 0.9), min_length=1, max_length=8)
    """Expected shares of rounds in which the detector objects to an attacker. The detector places a
    bet for each share. A bet on a high share quickly detects an attacker that draws an objection in
    every round. A bet on a low share detects an attacker that is often hidden by noise."""
    memories: tuple[Memory, ...] = Field(default=(0.0, 0.8), min_length=1, max_length=8)
    """A round is compared with moving averages over the client's former rounds. Each of these
    weights defines one average: it is the weight of the old average in every update. With weight 0,
    a round is compared with the client's last round only. The detector places a bet for each pair
    of a weight and a share in `expected`; the evidence is the logarithm of the mean of all these
    e-processes."""
    turned: float = Field(default=-0.1, ge=-1, le=0)
    """Correlation below which a response is turned."""
    informative: float = Field(default=0.05, ge=0, le=1)
    """The detector objects to turned responses only in rounds in which the median correlation is at
    least this number."""
    overshoot: float = Field(default=2.0, gt=1)
    """Strength of a response above which an upload overshoots if it is also longer than
    `stretched`."""
    stretched: float = Field(default=3.0, gt=1)
    """Length above which an upload may overshoot, as a multiple of the length of the median
    client's longest upload.
    """
    long: float = Field(default=10.0, gt=1)
    """Length above which an upload may be too long, as a multiple of the length of the median
    client's longest upload."""
    spread: float = Field(default=3.0, ge=0)
    """An upload is not too long if its log length is at most this many median absolute deviations
    above the median log length."""
    challenges: bool = True
    """Whether suspects are challenged. If not, the detector bets on every round, and honest clients
    whose loss has negative curvature may be evicted. In the mode `observe`, no client is
    challenged."""
    strength: float = Field(default=8.0, gt=0)
    """Length of a suspect's first challenge, as a multiple of the median upload's length."""
    decoys: int = Field(default=19, ge=8)
    """Number of decoys that answers to challenges are compared with. A decoy is drawn like a
    challenge, but sent to nobody."""

    @model_validator(mode="after")
    def _decoys_can_show_an_objection(self) -> Self:
        if self.tolerated * (1 + self.decoys) < 1:
            raise ValueError(
                f"decoys {self.decoys} is too few for tolerated {self.tolerated}: it must be at "
                f"least {ceil(1 / self.tolerated) - 1}"
            )
        return self

    @model_validator(mode="after")
    def _other_rounds_tolerate_less(self) -> Self:
        if self.tolerated_long > self.tolerated:
            raise ValueError(
                f"tolerated_long {self.tolerated_long} is above tolerated {self.tolerated}"
            )
        return self

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        known, heard = self._recalled(state)
        heard = self._admit(known, (*rows.ids, *rows.dropped), heard, self._newcomer)
        traces = rows.traces or self._sketched(rows, context)
        lengths = dict(zip(rows.ids, self._lengths(rows), strict=True))
        lengths |= dict.fromkeys(rows.dropped, inf)
        fresh = dict(zip(rows.ids, rows.fresh(), strict=True))
        decoys_JK = state.tensors.get("decoys", torch.empty(0, self.sketch)).cpu()
        starts, asked = dict[str, Start](), dict[str, Tensor]()
        for client, start_K in zip(rows.ids, traces.start_MK, strict=True):
            if fresh[client]:
                starts[client], challenge_K = known[client].started(start_K)
                if challenge_K is not None:
                    asked[client] = torch.cat([challenge_K[None], decoys_JK.double()])
        for client, length in lengths.items():
            # The answer to a challenge makes an upload longer.
            # If such uploads counted, challenges would grow from round to round.
            if isfinite(length) and starts.get(client) != "challenged":
                known[client].length = length
                known[client].longest = max(known[client].longest, length)
        responses = self._responses(rows.ids, traces, fresh, known, asked)
        usual = self._usual(known, rows.whole_dim)
        followed = [
            usual.times(lengths[client]) <= usual.most and known[client].evidence <= SUSPECT
            for client in rows.ids
        ]
        cosines = dict(zip(rows.ids, agreements(traces.upload_MK, followed), strict=True))
        silent = (None,) * len(self.memories)
        passive = not self.challenges or context.observes
        verdicts = tuple(
            self._judge(
                client,
                known[client],
                Upload(
                    usual.times(length),
                    responses.get(client, silent),
                    starts.get(client, "usual"),
                    passive,
                    cosines.get(client, 0.0) > -usual.turned,
                ),
                usual,
            )
            if fresh.get(client, True)
            else self._stale(client, known[client])
            for client, length in lengths.items()
        )
        return verdicts, remembered(known, heard)

    def challenge(
        self,
        rows: Rows,
        customization: Customization,
        global_D: Tensor,
        state: State,
        context: Context,
    ) -> tuple[Customization, State]:
        if not self.challenges:
            return customization, state
        known, heard = self._recalled(state)
        draws, numbers = context.generator(self.name), (self.strength, self.decoys, self.sketch)
        customization, decoys_JK = suspects.challenge(
            known, rows, customization, global_D, draws, *numbers
        )
        return customization, remembered(known, heard, decoys_JK)

    def _recalled(self, state: State) -> tuple[dict[str, Known], int]:
        """What the state contains about each client, and how many clients ever joined."""
        known = recalled(state, len(self.memories), len(self.expected))
        return known, int(state.tensors.get("heard", torch.tensor(0)))

    def _newcomer(self, limit: float) -> Known:
        return Known(limit, tuple(Past(self._nothing) for _ in self.memories))

    def _lengths(self, rows: Rows) -> list[float]:
        lengths_M = rows.metadata.get("moved")
        return list((linalg.norms(rows) if lengths_M is None else lengths_M).tolist())

    def _usual(self, known: Mapping[str, Known], dim: int) -> Usual:
        """Typical values of all known clients, including clients that are not in this round."""
        informative = tuple(
            tells((one.pasts[place].correlation for one in known.values()), self.informative)
            for place in range(len(self.memories))
        )
        turned = min(self.turned, -DEVIATIONS / min(dim, self.sketch) ** 0.5)
        middle, most = typical([one.longest for one in known.values()], self.long, self.spread)
        return Usual(
            middle, most, informative, turned, self.overshoot, self.stretched, self.tolerated
        )

    def _responses(
        self,
        ids: Sequence[str],
        traces: Traces,
        fresh: Mapping[str, bool],
        known: Mapping[str, Known],
        asked: Mapping[str, Tensor],
    ) -> dict[str, Responses]:
        """Responses of the fresh uploads, by client; stores the clients' new sketches."""
        found = dict[str, Responses]()
        uploads_MK, starts_MK = traces.upload_MK.double(), traces.start_MK.double()
        for client, upload_K, start_K in zip(ids, uploads_MK, starts_MK, strict=True):
            if fresh[client]:
                pasts = zip(known[client].pasts, self.memories, strict=True)
                found[client] = tuple(
                    past.respond(upload_K, start_K, m, asked.get(client)) for past, m in pasts
                )
        return found

    def _judge(self, client: str, one: Known, upload: Upload, usual: Usual) -> Verdict:
        """Settles a client's bets with its new upload; returns the verdict on the upload."""
        objections = [
            objection_to(upload, response, informative, usual)
            for response, informative in zip(upload.responses, usual.informative, strict=True)
        ]
        if upload.counts or one.evidence <= SUSPECT:
            self._bet(one, upload.responses, objections, usual)
        place = next((i for i, objection in enumerate(objections) if objection), 0)
        proven = upload.counts and bool(objections[place])
        convicted, suspected = one.evidence > one.limit, one.evidence > SUSPECT
        opposes = proven or (upload.counts and pushes(upload, usual))
        decision: Literal["accepted", "rejected", "evicted"] = "accepted"
        if convicted and proven:
            decision = "evicted"
        elif (
            convicted
            or (suspected and opposes)
            or upload.start == "refused"
            or not acceptable(upload, objections, usual, suspected)
        ):
            decision = "rejected"
        return Verdict(
            client=client,
            decision=decision,
            detector=self.name,
            score=min(one.evidence, 1e300),
            threshold=one.limit,
            reason=self._reason(decision, one, why(upload, place, objections[place], usual)),
            evidence=one.evidence,
        )

    def _bet(
        self,
        one: Known,
        responses: Responses,
        objections: Sequence[Objection],
        usual: Usual,
    ) -> None:
        """Settles a client's bets on the objections of this round."""
        one.rounds += 1
        for past, response, informative, objection in zip(
            one.pasts, responses, usual.informative, objections, strict=True
        ):
            tolerated = (
                self.tolerated if informative and response is not None else self.tolerated_long
            )
            past.wealth = self._settled(
                past.wealth, one.rounds, one.limit, tolerated, bool(objection)
            )

    def _stale(self, client: str, one: Known) -> Verdict:
        return Verdict(
            client, "accepted", self.name, one.evidence, one.limit, "judged before", one.evidence
        )

    def _reason(self, decision: str, one: Known, because: str) -> str:
        """The verdict's reason in one sentence, with the quantity, limit, unit and cohort."""
        if decision == "evicted":
            return (
                f"evidence {one.evidence:.3g} exceeds {one.limit:.3g} after {one.rounds} rounds "
                f"({self.odds}); {because}"
            )
        suspect = "suspect with " if self.challenges and one.evidence > SUSPECT else ""
        return f"{because}; {suspect}evidence {one.evidence:.3g} of {one.limit:.3g}"
