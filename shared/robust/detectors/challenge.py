"""Detects clients that copy uploads and do not react to changes of their starting model.

Legend: M rows of the round, H clients remembered, J decoys, K numbers of a sketch.
"""

from collections.abc import Mapping, Sequence
from math import log
from statistics import median
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.evidence import challenges
from rampart_fl.shared.robust.evidence.betting import Bet, evidence
from rampart_fl.shared.robust.evidence.near_copies import near_copies, neighbours_within
from rampart_fl.shared.robust.evidence.sequential import SUSPECT, SequentialDetector, Share
from rampart_fl.shared.robust.evidence.trials import TrialRecord, from_state, to_state
from rampart_fl.shared.robust.sketch import Traces
from rampart_fl.shared.rounding import ceil_div

PROVEN = -1.0
"""A client has answered enough challenges if the evidence against it is at most this limit. The
upload of a client that has answered enough challenges stays in the round even if other clients send
the same upload."""
ANSWERS = Bet(0.4, 0.9)
"""The bet that a client answers as honest clients do. If this bet wins enough, the client is
acquitted. A copy depends neither on the challenge nor on the decoys, so the answer of a copy has a
standard normal distribution. The lowest limit on answers is `share` x `clear` = 0.25. A copy's
answer reaches the lowest limit with probability 0.4. An honest client is expected to reach the
lowest limit in nine rounds of ten."""
LEAST = 3
"""The median answer of clients not on trial is used only if at least this many of these clients
have answered."""
EQUAL = 1e-4
"""Two uploads are treated as equal if their distance 1 - cosine is below this number."""
NEAR = 1e-5
"""Two starting models are treated as equal if their relative distance is at most this number."""


@detectors.register("challenge")
class ChallengeDetector(SequentialDetector, challenges.Challenger):
    """Evicts clients that send copies of updates and ignore changes of their starting model.

    In many attacks (Min-Max, Min-Sum, Fang, IPM, mimic, Sybil clones), all colluders send the same
    update, or nearly the same update. Copies alone prove nothing, because one of the senders may be
    the honest client that the other senders copy. The detector therefore puts a client on trial if
    the client sends copies (see `alike`) in two rounds. For the next `trial` rounds in which the
    client takes part, its starting model contains a challenge. The challenge is a random change δ:
    a combination of accepted clients' updates that is `strength` times as long as the median
    upload. Training partly reverses δ: the change Δu of the client's upload satisfies -<Δu, δ> > 0.
    A copied upload does not depend on the sender's own δ. A copied upload therefore reverses δ no
    more than it reverses `decoys`. Decoys are changes that are drawn like δ but sent to nobody.

    The detector also challenges a few clients that are not on trial (`controls`), to measure the
    answers of honest training. The usual answer is the median answer of the clients that are not on
    trial. The detector objects to a client on trial if the client's answer is below `share` times
    the usual answer. If the usual answer is below `clear` standard deviations, the detector ignores
    the round.

    Evidence is the logarithm of an e-process over the detector's objections
    (`rampart_fl.shared.robust.evidence.betting`). The detector assumes that an honest client's
    answers rarely lead to objections: given all earlier rounds, each answer during a trial leads to
    an objection with a probability of at most `tolerated`. Under this assumption, the probability
    that any honest client is ever evicted is below `level`. If nobody sends copies, nobody is on
    trial and no model is changed.

    The detector does not find colluders that actually train. The detector also misses colluders if
    each of them adds noise that is as large as the noise in an honest client's update.

    >>> rows = Rows.of([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
    >>> verdicts, state = ChallengeDetector().apply(rows, State(), Context())
    >>> [verdict.decision for verdict in verdicts]
    ['rejected', 'rejected', 'accepted', 'accepted']
    """

    paper = (
        "Waudby-Smith and Ramdas, Estimating means by betting, 2023 (e-processes); our statistic"
    )
    breakdown = "none: half of the clients not on trial must be honest; a copied client must answer"
    complexity = "O(nd), keeps n sketches; n on trial: O(n²d) for their models"
    passes = "0, and 2 for the models of clients on trial"
    tolerated: float = Field(default=0.25, gt=0, lt=1)
    """Assumed bound on the probability that the answer of an honest client on trial leads to an
    objection."""
    expected: tuple[Share, ...] = Field(default=(0.65,), min_length=1, max_length=8)
    """Expected shares of rounds in which the detector objects to a client that is on trial and
    sends copies. The detector places a separate bet for each expected share."""
    alike: float = Field(default=0.998, gt=0, lt=1)
    """Two uploads may be copies of each other only if their cosine is above this number."""
    usual: float = Field(default=0.05, gt=0, le=1)
    """Two uploads may be copies of each other only if their distance 1 - cosine is below this
    multiple of the median distance between pairs."""
    trial: int = Field(default=10, ge=1)
    """A client is put on trial if it sends two copies within this number of rounds, counting only
    rounds in which the client takes part. A trial ends after `trial` rounds without a copy from the
    client, or earlier if the client's answers acquit the client."""
    rest: int = Field(default=20, ge=0)
    """Number of rounds after an acquittal in which copies do not put the client on trial again.
    The number counts only rounds in which the client takes part. The protection of an acquitted
    client ends early if the evidence against another sender of the same upload exceeds the
    limit."""
    acquittal: float = Field(default=0.01, gt=0, lt=1)
    """Largest probability that a trial acquits a client that sends copies."""
    longer: int = Field(default=50, ge=1)
    """When the evidence against a client exceeds the limit, all clients that are on trial remain on
    trial for at least this number of rounds. For each client, only the rounds in which it takes
    part are counted. The other senders of the same upload are put on trial, too, even if they were
    acquitted before."""
    wait: int = Field(default=25, ge=0)
    """Largest number of rounds for which an eviction waits for evidence about the other senders of
    the same upload. Only rounds in which the client to be evicted takes part are counted."""
    strength: float = Field(default=3.0, gt=0)
    """Length of a challenge, as a multiple of the median upload's length."""
    controls: int = Field(default=5, ge=3)
    """Average number of clients per round that are challenged although they are not on trial."""
    clear: float = Field(default=1.0, gt=0)
    """Lower limit on the median answer of the clients that are not on trial, in standard deviations
    of the answers to decoys. If the median answer is below this limit, the detector ignores the
    round."""
    share: float = Field(default=0.25, ge=0, lt=1)
    """The detector objects to an answer below this share of the median answer of clients not on
    trial."""
    blocks: int = Field(default=32, ge=1)
    """Number of blocks of coordinates that a challenge changes independently."""
    decoys: int = Field(default=16, ge=8)
    """Number of decoys that a challenge is compared with."""

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        known, joined = from_state(state, len(self.expected))
        joined = self._admit(known, (*rows.ids, *rows.dropped), joined, self._newcomer)
        traces = rows.traces or self._sketched(rows, context)
        fresh = [i for i, new in enumerate(rows.fresh()) if new]
        ids = [rows.ids[i] for i in fresh]
        fresh_MK = traces.upload_MK[fresh].double()
        similar = near_copies(fresh_MK, 1 - self.alike, self.usual)
        equal = neighbours_within(fresh_MK, EQUAL)
        if 2 * sum(map(bool, similar)) > len(ids):
            # Most clients sent similar uploads. Most clients are assumed to be honest, so some
            # senders of similar uploads are honest, for example clients with similar data. Similar
            # uploads therefore prove nothing in this round.
            similar = equal = [[] for _ in ids]
        since = {
            client: self._since(known[client], traces, i)
            for client, i in zip(ids, fresh, strict=True)
        }
        answers: dict[str, float] = {}
        for place, (client, i) in enumerate(zip(ids, fresh, strict=True)):
            one, upload_K = known[client], traces.upload_MK[i].float()
            shift_JK = since[client]
            if shift_JK is not None and one.upload is not None:
                same = [since[ids[other]] for other in similar[place]]
                others = [other_JK[0] for other_JK in same if other_JK is not None]
                answer = challenges.answer(
                    upload_K.double() - one.upload.double(),
                    shift_JK,
                    torch.stack(others) if others else None,
                )
                if answer is not None:
                    one.answer = answers[client] = answer
            one.upload = upload_K
            # An upload that answers a challenge is longer than other uploads. If uploads that
            # answer challenges changed `length`, challenges would become longer from round to
            # round.
            if one.shift is None and bool(upload_K.isfinite().all()):
                one.length = float(upload_K.norm())
            one.sighted(bool(similar[place]), self.trial)
        given = [k.answer for k in known.values() if not k.trial and k.answer is not None]
        usual = median(given) if len(given) >= LEAST else 0.0
        for client in ids:
            self._bet(known[client], answers.get(client), usual)
        guilty = [place for place, client in enumerate(ids) if known[client].waited == 1]
        if guilty:
            for one in known.values():
                one.trial = max(one.trial, self.longer) if one.trial else 0
        for client in {ids[other] for place in guilty for other in similar[place]}:
            if not known[client].waited:
                known[client].try_for(self.longer)
        groups = dict(zip(ids, zip(similar, equal, strict=True), strict=True))
        verdicts = tuple(
            self._judge(
                client,
                known[client],
                answers.get(client),
                usual,
                *([known[ids[k]] for k in those] for those in groups.get(client, ((), ()))),
            )
            for client in rows.ids
        )
        return verdicts, to_state(known, joined)

    def _newcomer(self, limit: float) -> TrialRecord:
        return TrialRecord(limit, self._nothing)

    def challenge(
        self,
        rows: Rows,
        customization: Customization,
        global_D: Tensor,
        state: State,
        context: Context,
    ) -> tuple[Customization, State]:
        known, joined = from_state(state, len(self.expected))
        for one in known.values():
            one.due_start = one.due_shift = None
        on_trial = {client for client, one in known.items() if one.trial}
        lengths = [one.length for one in known.values() if one.length]
        if not on_trial or len(rows) < challenges.LEAST or not lengths:
            return customization, to_state(known, joined)
        draws = context.generator(self.name)
        pool_BMK = challenges.sketches(rows, self.blocks, self.sketch)
        length = self.strength * median(lengths)
        clients = sorted(on_trial | self._controls(known, len(rows), draws))
        weights = {
            client: challenges.draw(pool_BMK, length, 1 + self.decoys, draws) for client in clients
        }
        customization = challenges.challenged(
            customization, global_D, rows, {c: drawn_LBM[0] for c, drawn_LBM in weights.items()}
        )
        own = challenges.OwnModels(customization, global_D, self.sketch, rows.place)
        for client, drawn_LBM in weights.items():
            shift_JK = challenges.changes(drawn_LBM, pool_BMK)
            known[client].due_start = (own.sketch(client) + shift_JK[0]).float()
            known[client].due_shift = shift_JK.float()
        return customization, to_state(known, joined)

    def _controls(
        self, known: Mapping[str, TrialRecord], drawn: int, draws: torch.Generator
    ) -> set[str]:
        """Random clients that are not on trial; about `controls` of them take part next round."""
        free = sorted(client for client, one in known.items() if not one.trial)
        drawn = max(drawn, 1)
        count = ceil_div(self.controls * max(len(known), drawn), drawn)
        count = min(count, max(LEAST, len(free) // 2))
        return {free[i] for i in torch.randperm(len(free), generator=draws)[:count].tolist()}

    def _since(self, one: TrialRecord, traces: Traces, row: int) -> Tensor | None:
        """An upload's challenge and decoys (1 + J, K), minus those of the client's previous upload.

        The result is None if neither the upload nor the previous upload started from a challenged
        model.
        """
        start_K, shift = traces.start_MK[row].float(), None
        if one.due_start is not None and one.due_shift is not None:
            near = NEAR * max(float(start_K.norm()), float(one.due_start.norm()))
            shift = one.due_shift if float((start_K - one.due_start).norm()) <= near else None
        before, one.shift = one.shift, shift
        if shift is None:
            return None if before is None else -before
        return shift if before is None else shift - before

    def _tells(self, one: TrialRecord, answered: float | None, usual: float) -> bool:
        return one.trial > 0 and answered is not None and usual >= self.clear

    def _objects(self, one: TrialRecord, answered: float | None, usual: float) -> bool:
        tells = self._tells(one, answered, usual)
        return tells and answered is not None and answered < self.share * usual

    def _bet(self, one: TrialRecord, answered: float | None, usual: float) -> None:
        if self._tells(one, answered, usual):
            objected = self._objects(one, answered, usual)
            one.rounds += 1
            one.wealth = self._settled(one.wealth, one.rounds, one.limit, self.tolerated, objected)
            one.answered += 1
            one.cleared = ANSWERS.settled(one.cleared, one.answered, ANSWERS.gain(not objected))
            if evidence([one.cleared], one.answered) > -log(self.acquittal):
                one.acquit(self.rest)
        if one.waited or one.evidence > one.limit:
            one.waited += 1

    def _judge(
        self,
        client: str,
        one: TrialRecord,
        answered: float | None,
        usual: float,
        similar: Sequence[TrialRecord],
        equal: Sequence[TrialRecord],
    ) -> Verdict:
        """The verdict on an upload, given the clients that sent `similar` or `equal` uploads."""
        objected = self._objects(one, answered, usual)
        decision: Literal["accepted", "rejected", "evicted"] = "accepted"
        if one.waited:
            undecided = any(not other.waited and not other.rest for other in similar)
            decision = "rejected" if undecided and one.waited <= self.wait else "evicted"
        elif (equal and not one.rest and one.evidence > PROVEN) or (
            objected and one.evidence > SUSPECT
        ):
            decision = "rejected"
        tells = self._tells(one, answered, usual)
        return Verdict(
            client=client,
            decision=decision,
            detector=self.name,
            score=min(one.evidence, 1e300),
            threshold=one.limit,
            reason=self._reason(
                decision, one, answered if tells else None, usual, objected, bool(similar)
            ),
            evidence=one.evidence,
        )

    def _reason(
        self,
        decision: str,
        one: TrialRecord,
        answered: float | None,
        usual: float,
        objected: bool,
        copied: bool,
    ) -> str:
        """The verdict's reason in one sentence: the quantity, unit, limit, and compared clients."""
        if answered is None:
            why = "on trial: " if one.trial else ""
            why += "sent the same as another client" if copied else "sent no copy"
        else:
            side = "is below" if objected else "reaches"
            why = (
                f"answer to its own challenge {answered:.2f} {side} {self.share * usual:.2f} "
                f"standard deviations (median of others {usual:.2f})"
            )
        if one.waited:
            waits = " waits for evidence on the other senders;" if decision == "rejected" else ""
            return (
                f"evidence exceeded {one.limit:.3g} after {one.rounds} rounds on trial "
                f"({self.odds});{waits} {why}"
            )
        return f"{why}; evidence {one.evidence:.3g} of {one.limit:.3g}"
