"""Checks that clients counteract movements of their starting models, as honest training does.

Legend: M rows of the round, H clients remembered, J decoys, K numbers of a sketch, D coordinates.
"""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.evidence import spot_checks, suspects
from rampart_fl.shared.robust.evidence.answers import Answer
from rampart_fl.shared.robust.evidence.client_memory import (
    ClientMemory,
    Start,
    from_state,
    to_state,
)
from rampart_fl.shared.robust.evidence.objections import (
    AGREES,
    DEVIATIONS,
    CohortLimits,
    Objection,
    Responses,
    Upload,
    acceptable,
    agreements,
    follows_movement,
    is_informative,
    objection_to,
    typical,
)
from rampart_fl.shared.robust.evidence.reasons import explain, reason
from rampart_fl.shared.robust.evidence.response_options import ResponseOptions
from rampart_fl.shared.robust.evidence.responses import ClientAverages
from rampart_fl.shared.robust.sketch import Traces


@detectors.register("response")
class ResponseDetector(ResponseOptions):
    """Evicts clients that repeatedly react to model changes differently from honest clients.

    Local training pulls a model towards parameters that fit the client's data. If the model that a
    client starts from moves by Δw, the client's update changes by Δu = -A Δw plus noise. Training
    with k steps of size η on a loss with the Hessian H gives A = I - (I - ηH)^k. If H is positive
    definite and η is small, A is also positive definite. Training then makes <Δu, Δw> negative, for
    any data, any number of samples and any number of steps. A client that uploads reversed updates
    makes <Δu, Δw> positive. The detector compares a client's updates with the client's earlier
    updates, so it does not penalize clients for having unusual data.

    The detector computes two kinds of Δw and Δu: relative to the client's previous round, and
    relative to moving averages over the client's earlier rounds (`memories`). If the model moves
    little per round, differences from averages are more informative. The model is further from its
    average than from its previous state, and an average of uploads has less noise than one upload.
    The detector bets on the two kinds separately. The average of the e-processes is an e-process.

    The detector objects to a client in a round for any of three reasons. First, the client's
    response is turned: the correlation of -Δu and Δw is below `turned`, and also too low to occur
    by chance between two random directions. Early in training, the loss may have negative
    curvature, and honest responses may then be turned, too. Turned responses therefore count only
    in rounds in which the clients' median correlation is at least `informative`. If an upload
    answers a challenge (see below), its response is turned if the answer's rank is low. Second, the
    client overshoots: the strength of its response, -<Δu, Δw> / |Δw|², is above `overshoot`, and
    the norm of its upload is above `stretched` times the typical norm (`typical`). Third, the
    upload is too long: its norm is above a limit (`long`, `spread`), and training with far more
    data cannot explain it. Far more data explains a strength below -`overshoot` only for uploads
    that agree with most other uploads. It never explains a strength above `overshoot`, an upload
    that is not finite, an upload that equals the previous upload, or pure noise. An upload is pure
    noise if |Δu| exceeds the norms of both the upload and the average of earlier uploads.

    The suspicion against a client is the logarithm of an e-process over the objections
    (`rampart_fl.shared.robust.evidence.betting`). The detector bets that the probability of an
    objection exceeds a bound. For a client with a response, the bound is `tolerated` if the round's
    responses are informative or the client answers a challenge. In all other cases, it is
    `tolerated_long`. If a bet expects a share q of objections, each objection multiplies the bet's
    wealth by q / bound. With the option `challenges`, suspicion alone evicts no client, because
    negative curvature of the loss can cause objections to honest clients, perhaps in many rounds.

    A suspect is a client whose suspicion or evidence (defined below) is above ln 20. The detector
    challenges suspects (`challenges`), and clients whose uploads oppose those of other clients
    (`spot_checks`): it adds a random change δ to the client's starting model. The client's answer
    is -<r, δ> / |δ|, where r is the part of its upload that is orthogonal to averages of its
    earlier uploads. The answer is ranked among the values of this formula for `decoys` other random
    changes, which nobody receives. Evidence is the logarithm of an e-process over the rounds in
    which the client started from a challenged model. In these rounds, the detector bets on low
    ranks, and on uploads that are too long or that overshoot. The detector makes two assumptions
    about each round, given all earlier rounds. First, honest training does not make low ranks more
    likely than chance does. If an upload does not depend on δ, all ranks are equally likely. If an
    upload undoes part of δ, its rank tends to be higher. Second, the probability that an honest
    client's upload is too long or overshoots is at most `tolerated`. Training with far more data
    makes the norms of uploads large, but also undoes δ. An upload therefore never counts as too
    long if its rank is in the highest fraction `tolerated` and it undoes at most `overshoot` times
    δ. Under these assumptions, the probability that any honest client is ever evicted is below
    `level`, for any number of rounds and whichever clients join.

    The detector rejects an upload whose norm is above the limit, even if there is no objection to
    the upload. In two cases, the limit is five times as high. First case: the client is not
    challenged, has uploaded before, and draws no objection. Second case: the client is neither
    challenged nor a suspect, no response is stronger than `overshoot`, and the upload agrees with
    most other clients' uploads. A suspect's upload is also rejected if the detector objects to it,
    or if it did not start from the challenged model. A suspect's upload is rejected, too, if its
    response to the model's whole movement, including the challenge, is turned.

    The verdict on an honest client depends on its own uploads. Colluders influence this verdict
    only through three things: the client's model, challenges (which combine uploads), and medians
    over clients. A minority of colluders moves medians only within the range of honest values.
    Copies react like the honest updates, so this detector does not find copies; `challenge` does.

    >>> traces = Traces(torch.tensor([[1.0], [1.1], [60.0]]), torch.zeros(3, 1))
    >>> rows = Rows.of(traces.upload_MK, traces=traces)
    >>> verdicts, _ = ResponseDetector().apply(rows, State(), Context())
    >>> [verdict.decision for verdict in verdicts]
    ['accepted', 'accepted', 'rejected']
    """

    paper = (
        "Waudby-Smith and Ramdas, Estimating means by betting, 2023 (e-processes); our statistic"
    )
    breakdown = "n / 2 for its median length; answers are compared with decoys, not with others"
    complexity = "O(nd), keeps n sketches; n suspects: O(n²d) for their models"
    passes = "0, and 2 for the models of suspects"
    own = False

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        known, joined = self._recalled(state)
        joined = self._admit(known, (*rows.ids, *rows.dropped), joined, self._newcomer)
        traces = rows.traces or self._sketched(rows, context)
        lengths = dict(zip(rows.ids, self._lengths(rows), strict=True))
        lengths |= dict.fromkeys(rows.dropped, inf)
        fresh = dict(zip(rows.ids, rows.fresh(), strict=True))
        starts, asked = dict[str, Start](), dict[str, Tensor]()
        for client in rows.dropped:
            starts[client] = "challenged" if known[client].due else "usual"
            known[client].due = ()
        ages = rows.metadata.get("age", torch.zeros(len(rows))).tolist()
        for client, start_K, age in zip(rows.ids, traces.start_MK, ages, strict=True):
            if fresh[client]:
                starts[client], due = known[client].started(start_K, context.round - int(age))
                if due is not None:
                    asked[client] = due.asked_JK
        for client, length in lengths.items():
            # The norms of challenges depend on `length`, and uploads that answer a challenge have
            # larger norms. If such uploads changed `length`, challenges would grow every round.
            if isfinite(length) and starts.get(client) != "challenged":
                known[client].length = length
                known[client].longest = max(known[client].longest, length)
        answers = self._answers(rows.ids, traces, known, asked)
        responses = self._responses(rows.ids, traces, fresh, known)
        usual = self._usual(known, rows.whole_dim)
        followed = [
            usual.times(lengths[client]) <= usual.most
            and not (known[client].suspected or client in context.examined)
            for client in rows.ids
        ]
        cosines = dict(zip(rows.ids, agreements(traces.upload_MK, followed), strict=True))
        for client, cosine in cosines.items():
            known[client].checks.last_round = context.round
            if fresh[client] and starts[client] == "usual":
                known[client].checks.uploaded(cosine)
        passive = not self.challenges or context.observes
        verdicts = tuple(
            self._judge(
                client,
                known[client],
                Upload(
                    usual.times(length),
                    responses.get(client, (None,) * len(self.memories)),
                    starts.get(client, "usual"),
                    passive,
                    cosines.get(client, 0.0) > AGREES,
                    answers.get(client),
                ),
                usual,
            )
            if fresh.get(client, True)
            else self._stale(client, known[client])
            for client, length in lengths.items()
        )
        suspects.expire(known, context.round, suspects.OUTSTANDING if context.buffered else 0)
        return verdicts, to_state(known, joined)

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
        known, joined = self._recalled(state)
        longest = self._usual(known, rows.whole_dim).longest
        checked = spot_checks.chosen(known, self.spot_checks, longest, context, self.name)
        numbers = (self.strength, self.decoys, self.sketch)
        customization = suspects.challenge(
            known, rows, customization, global_D, self.name, context, *numbers, checked
        )
        return customization, to_state(known, joined)

    def _recalled(self, state: State) -> tuple[dict[str, ClientMemory], int]:
        """What the state contains about each client, and how many clients have ever joined."""
        known = from_state(state, len(self.memories), len(self.expected))
        return known, int(state.tensors.get("heard", torch.tensor(0)))

    def _newcomer(self, limit: float) -> ClientMemory:
        nothing = self._nothing
        pasts = tuple(ClientAverages(nothing) for _ in self.memories)
        return ClientMemory(limit, pasts, answered=nothing, exceeded=nothing)

    def _lengths(self, rows: Rows) -> list[float]:
        lengths_M = rows.metadata.get("moved")
        return list((linalg.norms(rows) if lengths_M is None else lengths_M).tolist())

    def _usual(self, known: Mapping[str, ClientMemory], dim: int) -> CohortLimits:
        """The limits on uploads, computed from all known clients, not only those of this round."""
        informative = tuple(
            is_informative(
                (one.pasts[place].correlation for one in known.values()), self.informative
            )
            for place in range(len(self.memories))
        )
        turned = min(self.turned, -DEVIATIONS / min(dim, self.sketch) ** 0.5)
        middle, most = typical([one.longest for one in known.values()], self.long, self.spread)
        return CohortLimits(
            middle, most, informative, turned, self.overshoot, self.stretched, self.tolerated
        )

    def _answers(
        self,
        ids: Sequence[str],
        traces: Traces,
        known: Mapping[str, ClientMemory],
        asked: Mapping[str, Tensor],
    ) -> dict[str, Answer]:
        """The answers of all uploads that started from a challenged model, keyed by client."""
        answers = {
            client: known[client].answer(upload_K, asked[client])
            for client, upload_K in zip(ids, traces.upload_MK, strict=True)
            if client in asked
        }
        return {client: answer for client, answer in answers.items() if answer is not None}

    def _responses(
        self,
        ids: Sequence[str],
        traces: Traces,
        fresh: Mapping[str, bool],
        known: Mapping[str, ClientMemory],
    ) -> dict[str, Responses]:
        """Returns the responses of the uploads that are new in this round (`fresh`), keyed by
        client; adds these uploads to the clients' averages."""
        responses = dict[str, Responses]()
        uploads_MK, starts_MK = traces.upload_MK.double(), traces.start_MK.double()
        for client, upload_K, start_K in zip(ids, uploads_MK, starts_MK, strict=True):
            if fresh[client]:
                pasts = zip(known[client].pasts, self.memories, strict=True)
                responses[client] = tuple(past.respond(upload_K, start_K, m) for past, m in pasts)
        return responses

    def _judge(
        self, client: str, one: ClientMemory, upload: Upload, usual: CohortLimits
    ) -> Verdict:
        """Settles the bets on a client's new upload; returns the verdict on the upload."""
        objections = [
            objection_to(upload, response, informative, usual)
            for response, informative in zip(upload.responses, usual.informative, strict=True)
        ]
        was_suspected = one.suspected
        if upload.counts or not was_suspected:
            self._suspect(one, upload, objections, usual)
        if upload.start == "challenged":
            self._prove(one, upload, objections, usual, was_suspected)
        place = next((i for i, objection in enumerate(objections) if objection), 0)
        proven = upload.counts and bool(objections[place])
        evidence = one.suspicion if upload.passive else one.evidence
        # Objections to a suspect count even if too few accepted rows were left for a challenge.
        opposes = (was_suspected and any(objections)) or (
            upload.counts and follows_movement(upload, usual)
        )
        decision: Literal["accepted", "rejected", "evicted"] = "accepted"
        if evidence > one.limit and proven:
            decision = "evicted"
        elif (
            evidence > one.limit
            or (one.suspected and opposes)
            or upload.start == "refused"
            or not acceptable(upload, objections, usual, one.suspected)
        ):
            decision = "rejected"
        because = explain(upload, place, objections[place], usual)
        return Verdict(
            client=client,
            decision=decision,
            detector=self.name,
            score=min(evidence, 1e300),
            threshold=one.limit,
            reason=reason(decision, one, because, upload.passive, self.odds),
            evidence=evidence,
        )

    def _suspect(
        self,
        one: ClientMemory,
        upload: Upload,
        objections: Sequence[Objection],
        usual: CohortLimits,
    ) -> None:
        """Settles the bets on this round's objections to a client."""
        one.rounds += 1
        for past, response, informative, objection in zip(
            one.pasts, upload.responses, usual.informative, objections, strict=True
        ):
            judged = response is not None and (informative or upload.answer is not None)
            tolerated = self.tolerated if judged else self.tolerated_long
            past.wealth = self._settled(
                past.wealth, one.rounds, one.limit, tolerated, bool(objection)
            )

    def _prove(
        self,
        one: ClientMemory,
        upload: Upload,
        objections: Sequence[Objection],
        usual: CohortLimits,
        suspected: bool,
    ) -> None:
        """Settles the bets on an upload that started from a challenged model."""
        one.trials += 1
        exceeds = all(objection in ("too long", "overshoots") for objection in objections)
        one.exceeded = self._settled(one.exceeded, one.trials, one.limit, self.tolerated, exceeds)
        answer = upload.answer
        rank, count = (1, 1) if answer is None else (answer.rank, answer.count)
        one.answered = self._settled_at(one.answered, one.trials, one.limit, rank, count)
        suspects.learn(one, upload, usual, suspected)

    def _stale(self, client: str, one: ClientMemory) -> Verdict:
        return Verdict(
            client, "accepted", self.name, one.evidence, one.limit, "judged before", one.evidence
        )
