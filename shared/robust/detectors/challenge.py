"""Detects clients that copy uploads and do not react to changes of their starting model.

Legend: M rows of the round, H clients remembered, J decoys, K numbers of a sketch.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import exp, log
from statistics import median
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.evidence import challenges, groups, relays
from rampart_fl.shared.robust.evidence.betting import Bet, evidence
from rampart_fl.shared.robust.evidence.near_copies import near_copies, neighbours_within
from rampart_fl.shared.robust.evidence.reasons import trial_reason
from rampart_fl.shared.robust.evidence.relays import Relay
from rampart_fl.shared.robust.evidence.sequential import SPARE, SUSPECT, SequentialDetector, Share
from rampart_fl.shared.robust.evidence.trials import TrialRecord, from_state, to_state
from rampart_fl.shared.rounding import ceil_div

PROVEN = -1.0
"""A client has answered enough challenges if its own answers yield at most this much evidence
against it. The client's upload is then not rejected for being equal to another client's upload. If
there is evidence that the client relays answers, this exemption does not apply."""
ANSWERS = Bet(0.4, 0.9)
"""A bet that a client on trial gives a good answer, that is, an answer without an objection. If the
detector wins this bet often enough, the client is acquitted. By default, a good answer is at least
`share` x `clear` = 0.25 standard deviations. A copy depends neither on the challenge nor on the
decoys, so its answer has a standard normal distribution. Such an answer is good with a probability
of at most 0.4. We expect good answers from an honest client in nine rounds of ten."""
LEAST = 3
"""The usual answer is the median answer of at least this many clients that are not on trial."""
ACQUITTED = 0.0
"""A trial acquits a client only if its answers to other clients' challenges yield at most this much
evidence against it."""
AWAY = 10
"""Evictions do not wait for evidence about other clients that were absent for this many rounds."""
EQUAL = 1e-4
"""Two uploads are treated as equal if their distance 1 - cosine is below this number."""


@detectors.register("challenge")
class ChallengeDetector(SequentialDetector, challenges.Challenger):
    """Evicts clients that send copies of updates and ignore changes of their starting model.

    In many attacks (Min-Max, Min-Sum, Fang, IPM, mimic, Sybil clones), all colluders send the same
    update, or nearly the same update. Copies alone prove nothing, because one of the senders may be
    the honest client that the other senders copy. The detector therefore puts a client on trial if
    the client sends copies (see `alike`) in two rounds. For the next `trial` rounds in which the
    client takes part, its starting model contains a challenge. The challenge is a random change δ:
    a combination of accepted clients' updates, with a norm of `strength` times the median norm of
    uploads. Training partly reverses δ: -<r, δ> > 0, where r is the part of the upload that the
    client's earlier uploads do not predict. A copied upload does not depend on the sender's own δ.
    A copied upload therefore reverses δ no more than it reverses `decoys`. Decoys are changes that
    are drawn like δ but sent to nobody.

    The detector also challenges a few clients that are not on trial (`controls`), to measure the
    answers of honest training. The usual answer is the median answer of the clients that are not on
    trial. The detector objects to a client on trial if the client's answer is below `share` times
    the usual answer. Answers are measured in standard deviations of the answers to decoys. If the
    usual answer is below `clear`, the detector ignores the round's answers.

    Colluders can train, and then upload combinations of their updates. Such an upload answers the
    challenges of several colluders. The upload of an honest client does not depend on the
    challenges of other clients. The detector therefore also compares each upload with the sum of
    the challenges of the other clients in the sender's group. A group consists of clients that have
    sent similar uploads (`rampart_fl.shared.robust.evidence.groups`).

    The evidence against a client is the logarithm of an e-process
    (`rampart_fl.shared.robust.evidence.betting`). The detector bets on objections to the client's
    own answers, and on the client's answers to other clients' challenges. The bets on own answers
    need one assumption about honest clients: given all earlier rounds, each answer in a trial leads
    to an objection with a probability of at most `tolerated`. The other bets need no assumption
    about training, because an honest upload does not depend on other clients' challenges. If the
    assumption about own answers holds, the probability that any honest client is ever evicted is
    below `level`. If nobody sends copies, nobody is on trial and no model is changed.

    The detector does not find attackers that send no copies. Examples are attackers that train on
    poisoned data, and colluders that each add as much noise as an honest update contains.

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
    sends copies. The detector places a separate bet on each expected share."""
    alike: float = Field(default=0.99, gt=0, lt=1)
    """Two uploads count as copies of each other only if their cosine is above this number."""
    usual: float = Field(default=0.05, gt=0, le=1)
    """Two uploads count as copies of each other only if their distance 1 - cosine is below this
    multiple of the median distance over all pairs of the round's uploads."""
    trial: int = Field(default=10, ge=1)
    """A client is put on trial if it sends two copies within this number of rounds, counting only
    rounds in which the client takes part. A trial ends after `trial` rounds without a copy from the
    client, or earlier if the client's answers acquit the client."""
    rest: int = Field(default=20, ge=0)
    """After an acquittal, copies do not put the client on trial again for this number of rounds in
    which the client takes part. The protection of an acquitted client ends early if the evidence
    against another client of its group exceeds the limit for evictions."""
    acquittal: float = Field(default=0.01, gt=0, lt=1)
    """Bound on the probability that a trial acquits a client that sends copies."""
    longer: int = Field(default=50, ge=1)
    """When the evidence against a client c exceeds the limit for evictions, all clients on trial
    remain on trial for at least this number of rounds. For each client, only rounds in which it
    takes part are counted. The other senders of c's upload are put on trial, too, and so are the
    acquitted clients of c's group."""
    wait: int = Field(default=25, ge=0)
    """The eviction of a client c waits for at most this number of rounds in which c takes part. The
    eviction waits for evidence about the other senders of c's upload, and about the other clients
    of c's group that are on trial."""
    strength: float = Field(default=3.0, gt=0)
    """Norm of a challenge, as a multiple of the median norm of uploads."""
    controls: int = Field(default=5, ge=3)
    """Average number of clients per round that are challenged although they are not on trial."""
    clear: float = Field(default=1.0, gt=0)
    """Lower limit on the median answer of the clients that are not on trial, in standard deviations
    of the answers to decoys. If the median answer is below this limit, the detector ignores the
    round's answers."""
    share: float = Field(default=0.25, ge=0, lt=1)
    """The detector objects to an answer that is below this share of the median answer of the
    clients that are not on trial."""
    blocks: int = Field(default=32, ge=1)
    """Number of blocks of coordinates; a challenge has its own random weights in each block."""
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
        counted = {place for place, client in enumerate(ids) if client not in context.examined}
        similar = near_copies(fresh_MK, 1 - self.alike, self.usual, sorted(counted))
        # Only uploads that count can lead to the rejection of an equal upload.
        equal = [counted.intersection(near) for near in neighbours_within(fresh_MK, EQUAL)]
        if 2 * sum(bool(counted.intersection(similar[i])) for i in counted) > len(counted):
            # Most clients sent similar uploads. Most clients are assumed to be honest, so some
            # senders of similar uploads are honest, for example clients with similar data. Similar
            # uploads therefore prove nothing in this round.
            similar, equal = [[] for _ in ids], [set[int]() for _ in ids]
        starts = [traces.start_MK[i].float() for i in fresh]
        asked = {c: known[c].asked_JK(start_K) for c, start_K in zip(ids, starts, strict=True)}
        relayed = groups.relays(known, rows, traces, context.selected, context.round)
        answers: dict[str, float] = {}
        for place, (client, i) in enumerate(zip(ids, fresh, strict=True)):
            one, upload_K = known[client], traces.upload_MK[i].float()
            asked_JK = asked[client]
            if asked_JK is not None and one.average is not None:
                same = [asked[ids[other]] for other in similar[place]]
                others = [other_JK[0] for other_JK in same if other_JK is not None]
                answer = challenges.answer(
                    relays.new_part(upload_K, one.average),
                    asked_JK,
                    torch.stack(others) if others else None,
                )
                if answer is not None:
                    one.answer = answers[client] = answer
            one.average = relays.averaged(one.average, upload_K)
            # An upload that answers a challenge has a larger norm than other uploads. If such an
            # upload changed `length`, the norms of challenges would grow from round to round.
            if asked_JK is None and bool(upload_K.isfinite().all()):
                one.length = float(upload_K.norm())
            one.last_round = context.round
            one.sighted(bool(similar[place]), self.trial)
        senders = {client: [ids[k] for k in similar[place]] for place, client in enumerate(ids)}
        groups.merge(known, senders)
        given = [k.answer for k in known.values() if not k.trial and k.answer is not None]
        usual = median(given) if len(given) >= LEAST else 0.0
        for client in ids:
            self._bet(known[client], answers.get(client), usual, relayed.get(client))
        guilty = [client for client in ids if known[client].waited == 1]
        if guilty:
            for one in known.values():
                one.trial = max(one.trial, self.longer) if one.trial else 0
        for client in guilty:
            acquitted = [c for c in groups.others_in_group(known, client) if known[c].rest]
            for other in {*senders[client], *acquitted}:
                if not known[other].waited:
                    known[other].try_for(self.longer)
        equals = {client: bool(equal[place]) for place, client in enumerate(ids)}
        verdicts = tuple(
            self._judge(
                client,
                known[client],
                answers.get(client),
                usual,
                [known[other] for other in senders.get(client, ())],
                equals.get(client, False),
                [
                    known[other]
                    for other in groups.others_in_group(known, client)
                    if context.round - known[other].last_round < AWAY
                ],
            )
            for client in rows.ids
        )
        for one in known.values():
            one.due_start = one.due_shift = None
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
        on_trial = {client for client, one in known.items() if one.trial}
        awaited = {client for client, one in known.items() if one.awaited}
        customization = challenges.awaiting(customization, awaited)
        lengths = [one.length for one in known.values() if one.length]
        if not on_trial or len(rows) < challenges.LEAST or not lengths:
            return customization, to_state(known, joined)
        draws = partial(context.generator, self.name)
        size, seed = self.sketch, context.seed
        pool_BMK = challenges.sketches(rows, self.blocks, size, seed)
        length = self.strength * median(lengths)
        clients = sorted(on_trial | self._controls(known, len(rows), draws("controls")))
        weights = {
            client: challenges.draw_with_decoys(pool_BMK, length, self.decoys, client, draws)
            for client in clients
        }
        customization = challenges.challenged(
            customization, global_D, rows, {c: drawn_LBM[0] for c, drawn_LBM in weights.items()}
        )
        own = challenges.OwnModels(customization, global_D, size, seed, rows.place)
        for client, drawn_LBM in weights.items():
            shift_JK = challenges.changes(drawn_LBM, pool_BMK)
            known[client].due_start = (own.sketch(client) + shift_JK[0]).float()
            known[client].due_shift = shift_JK.float()
            known[client].due_round = context.round
        return customization, to_state(known, joined)

    def _controls(
        self, known: Mapping[str, TrialRecord], drawn: int, draws: torch.Generator
    ) -> set[str]:
        """Draws clients not on trial; about `controls` of them will take part in the next round."""
        free = sorted(client for client, one in known.items() if not one.trial)
        count = ceil_div(self.controls * max(len(known), drawn), drawn)
        count = min(count, max(LEAST, len(free) // 2))
        return {free[i] for i in torch.randperm(len(free), generator=draws)[:count].tolist()}

    def _tells(self, one: TrialRecord, answered: float | None, usual: float) -> bool:
        return one.trial > 0 and answered is not None and usual >= self.clear

    def _objects(self, one: TrialRecord, answered: float | None, usual: float) -> bool:
        tells = self._tells(one, answered, usual)
        return tells and answered is not None and answered < self.share * usual

    def _answers(self, one: TrialRecord) -> bool:
        """Whether a client was recently acquitted, or answers its challenges without relaying."""
        return one.rest > 0 or (one.own_evidence <= PROVEN and one.relay_evidence <= ACQUITTED)

    def _bet(
        self, one: TrialRecord, answered: float | None, usual: float, relay: Relay | None
    ) -> None:
        if relay is not None:
            one.compared += 1
            one.relayed = relay.settled(one.relayed, one.compared, exp(one.limit + SPARE))
        if self._tells(one, answered, usual):
            objected = self._objects(one, answered, usual)
            one.rounds += 1
            one.wealth = self._settled(one.wealth, one.rounds, one.limit, self.tolerated, objected)
            one.answered += 1
            one.cleared = ANSWERS.settled(one.cleared, one.answered, ANSWERS.gain(not objected))
            enough = evidence([one.cleared], one.answered) > -log(self.acquittal)
            if enough and one.relay_evidence <= ACQUITTED:
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
        equal: bool,
        group: Sequence[TrialRecord],
    ) -> Verdict:
        """The verdict on an upload.

        Args:
            client: the client's id.
            one: what is remembered about the client.
            answered: the client's answer to its challenge; None without an answer.
            usual: the median answer of the clients that are not on trial; 0 if too few answered.
            similar: records of the other clients that sent similar uploads in this round.
            equal: whether another client sent an equal upload in this round.
            group: records of the other clients of the client's group that took part recently.
        """
        objected = self._objects(one, answered, usual)
        decision: Literal["accepted", "rejected", "evicted"] = "accepted"
        if one.waited:
            undecided = any(not other.waited and not other.rest for other in similar) or any(
                other.trial and not other.waited for other in group
            )
            decision = "rejected" if undecided and one.waited <= self.wait else "evicted"
        elif (objected and one.evidence > SUSPECT) or (equal and not self._answers(one)):
            decision = "rejected"
        answer = None
        if answered is not None and self._tells(one, answered, usual):
            answer = (answered, self.share * usual, usual)
        return Verdict(
            client=client,
            decision=decision,
            detector=self.name,
            score=min(one.evidence, 1e300),
            threshold=one.limit,
            reason=trial_reason(decision, one, answer, bool(similar), self.odds),
            evidence=one.evidence,
        )
