"""The default detector: it checks that clients pull the model back, as all training does.

Legend: M rows of the round, H clients remembered, K numbers of a sketch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from statistics import median
from typing import Literal, Self

import torch
from pydantic import Field, model_validator

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.betting import Bet
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.responses import Known, Response, recalled, remembered, respond
from rampart_fl.shared.robust.sequential import SUSPECT, SequentialDetector
from rampart_fl.shared.robust.sketch import Traces

DEVIATIONS = 3.0
"""A response is turned only if its correlation is below minus this many standard deviations of the
correlation of two random directions."""
PULLS = 0.3
"""Correlation above which a strong response is real. Below it, a response may seem strong because
of noise in the upload, if the model moved only a little."""


@dataclass(frozen=True)
class Usual:
    """What the clients of a round are compared with.

    Args:
        length: length of the median client's longest upload.
        most: longest upload that is accepted, as a multiple of `length`.
        informative: whether half of the clients pull back, so that a turned response is meaningful.
        turned: correlation below which a response is turned.
    """

    length: float
    most: float
    informative: bool
    turned: float

    def times(self, length: float) -> float:
        """A length as a multiple of the median client's longest upload."""
        if self.length > 0:
            return length / self.length
        return inf if length else 0.0


@detectors.register("response")
class ResponseDetector(SequentialDetector):
    """Evicts clients whose updates repeatedly react to the model in a way that no training does.

    Local training pulls a model towards what fits the client's data. If the model that a client
    starts from moves by Δw, its update changes by Δu = -A Δw plus noise, with A = I - (I - ηH)^K
    positive for K steps on a loss of curvature H. So <Δu, Δw> < 0, whatever the client's data,
    number of samples or number of steps. A client that reverses its own updates or those of others
    flips this sign. The detector compares a client with itself, not with other clients, so it does
    not penalize rare data.

    Δw and Δu are differences from moving averages over the client's former rounds (`memory`). Since
    Δu depends linearly on Δw, averages keep the sign. The model has moved further since the average
    than since the last round, and the average has less noise than one upload.

    The detector objects to a client in a round for any of three reasons:
    - Its response is turned: the correlation is below `turned`, and lower than chance explains for
      two random directions in as many dimensions. This reason applies only in rounds in which at
      least half of the clients have a correlation of `informative` or more, because early in
      training the loss may have negative curvature.
    - The client overshoots: its upload reverses Δw more than `overshoot` times, and is more than
      `stretched` times as long as the median client's longest upload.
    - Its upload is too long: more than `long` times as long as the median client's longest upload,
      or exp(`spread` MAD(ln longest)) times as long if that is more.

    Evidence is the logarithm of an e-process over these objections
    (`rampart_fl.shared.robust.betting`). The assumption is about the probability of an objection to
    an honest client, given all earlier rounds. It is at most `tolerated` in rounds in which
    responses are informative, and at most `tolerated_long` in all other rounds. Then the
    probability that any honest client is ever evicted is below `level`, however long the federation
    runs and whoever joins it. An objection multiplies a bet by `expected` / `tolerated`.

    An upload is rejected in this round if it is too long, or if another objection applies and the
    client's evidence is above ln 20.

    A longer update that is within these limits and does not overshoot is accepted, because a client
    with more samples could have sent it. For the medians over clients' longest uploads, lengths
    that agree to six digits are treated as one length.

    An honest client is judged by its own uploads. Colluders can influence the verdict on this
    client only through the model that it receives. As long as fewer than half of the clients
    collude, colluders do not determine the medians. Copies of an honest update react as the honest
    client does; the detector `challenge` finds them.

    >>> traces = Traces(torch.tensor([[1.0], [1.1], [40.0]]), torch.zeros(3, 1))
    >>> rows = Rows.of(traces.upload_MK, traces=traces)
    >>> verdicts, _ = ResponseDetector().apply(rows, State(), Context())
    >>> [verdict.decision for verdict in verdicts]
    ['accepted', 'accepted', 'rejected']
    """

    paper = (
        "Waudby-Smith and Ramdas, Estimating means by betting, 2023 (e-processes); our statistic"
    )
    breakdown = "none: an honest client answers for itself, but colluders move the model it is sent"
    complexity = "O(nd), keeps n sketches"
    tolerated: float = Field(default=0.2, gt=0, lt=1)
    """Largest probability that a round in which responses are informative objects to an honest
    client."""
    tolerated_long: float = Field(default=0.02, gt=0, lt=1)
    """The same probability for all other rounds, which do not object to turned responses."""
    expected: float = Field(default=0.6, gt=0, lt=1)
    """Share of rounds that are expected to object to an attacker."""
    memory: float = Field(default=0.8, ge=0, lt=1)
    """Weight of the former average in the averages that a round is compared with. If it is 0, a
    round is compared with the client's last round only."""
    turned: float = Field(default=-0.1, ge=-1, le=0)
    """Correlation below which a response is turned."""
    informative: float = Field(default=0.05, ge=0, le=1)
    """Lowest median correlation for a round to object to turned responses."""
    overshoot: float = Field(default=2.0, gt=1)
    """Strength of a response above which a stretched upload overshoots."""
    stretched: float = Field(default=3.0, gt=1)
    """Length above which an upload may overshoot, in lengths of the median client's longest upload.
    """
    long: float = Field(default=10.0, gt=1)
    """Length above which an upload may be too long, in lengths of the median client's longest
    upload."""
    spread: float = Field(default=3.0, ge=0)
    """Distance above the median log length within which an upload is not too long, in median
    absolute deviations of log lengths."""

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
        known = recalled(state)
        heard = int(state.tensors.get("heard", torch.tensor(0)))
        heard = self._admit(known, (*rows.ids, *rows.dropped), heard, Known)
        traces = rows.traces or self._sketched(rows, context)
        lengths = dict(zip(rows.ids, self._lengths(rows), strict=True))
        lengths |= dict.fromkeys(rows.dropped, inf)
        fresh = dict(zip(rows.ids, rows.fresh(), strict=True))
        for client, length in lengths.items():
            if isfinite(length):
                known[client].longest = max(known[client].longest, length)
        responses = self._responses(rows.ids, traces, fresh, known)
        usual = self._usual(known, rows.dim)
        verdicts = tuple(
            self._judge(client, known[client], length, responses.get(client), usual)
            if fresh.get(client, True)
            else self._stale(client, known[client])
            for client, length in lengths.items()
        )
        return verdicts, remembered(known, heard)

    def _lengths(self, rows: Rows) -> list[float]:
        lengths_M = rows.metadata.get("moved")
        lengths: list[float] = (linalg.norms(rows) if lengths_M is None else lengths_M).tolist()
        return lengths

    def _usual(self, known: Mapping[str, Known], dim: int) -> Usual:
        """Typical values of all known clients, including clients that are not in this round."""
        correlations = [one.correlation for one in known.values() if one.correlation is not None]
        informative = bool(correlations) and median(correlations) >= self.informative
        turned = min(self.turned, -DEVIATIONS / min(dim, self.sketch) ** 0.5)
        lengths = {f"{one.longest:.6g}": one.longest for one in known.values() if one.longest > 0}
        if not lengths:
            return Usual(0.0, self.long, informative, turned)
        middle = median(lengths.values())
        deviation = median(abs(log(length / middle)) for length in lengths.values())
        most = max(self.long, exp(min(self.spread * deviation, 700.0)))
        return Usual(middle, most, informative, turned)

    def _responses(
        self,
        ids: Sequence[str],
        traces: Traces,
        fresh: Mapping[str, bool],
        known: Mapping[str, Known],
    ) -> dict[str, Response]:
        """Responses of clients whose starting model has moved; stores the clients' new sketches."""
        found = {}
        uploads_MK, starts_MK = traces.upload_MK.double(), traces.start_MK.double()
        for client, upload_K, start_K in zip(ids, uploads_MK, starts_MK, strict=True):
            if not fresh[client]:
                continue
            one = known[client]
            if one.averages is not None:
                response = respond(upload_K, start_K, *one.averages)
                if response is not None:
                    found[client] = response
                    one.correlation = response.correlation
            one.average(upload_K, start_K, self.memory)
        return found

    def _judge(
        self, client: str, one: Known, length: float, response: Response | None, usual: Usual
    ) -> Verdict:
        """Settle a client's bet with its new upload, and return the verdict on the upload."""
        times = usual.times(length)
        tells = response is not None and usual.informative
        too_long = times > usual.most
        turned = overshoots = False
        if response is not None:
            turned = tells and response.correlation < usual.turned
            far = response.strength > self.overshoot and response.correlation > PULLS
            overshoots = far and times > self.stretched
        objected = too_long or turned or overshoots
        tolerated = self.tolerated if tells else self.tolerated_long
        self._settle(one, Bet(tolerated, tolerated * self.expected / self.tolerated), objected)
        decision: Literal["accepted", "rejected", "evicted"] = "accepted"
        if one.evidence > one.limit:
            decision = "evicted"
        elif too_long or (objected and one.evidence > SUSPECT):
            decision = "rejected"
        return Verdict(
            client=client,
            decision=decision,
            detector=self.name,
            score=min(one.evidence, 1e300),
            threshold=one.limit,
            reason=self._reason(
                decision, one, times, usual, response, (too_long, turned, overshoots)
            ),
            evidence=one.evidence,
        )

    def _stale(self, client: str, one: Known) -> Verdict:
        return Verdict(
            client, "accepted", self.name, one.evidence, one.limit, "judged before", one.evidence
        )

    def _reason(
        self,
        decision: str,
        one: Known,
        times: float,
        usual: Usual,
        response: Response | None,
        objections: tuple[bool, bool, bool],
    ) -> str:
        """The verdict's reason in one sentence: quantity, limit, unit and cohort."""
        too_long, turned, overshoots = objections
        if too_long:
            why = f"upload is {times:.3g} times as long as the median client's longest, above the "
            why += f"limit of {usual.most:.3g}"
        elif turned:
            assert response is not None
            why = f"response {response.correlation:.2f} to the model's movement is below "
            why += f"{usual.turned:.2g}: it pushes where others pull back"
        elif overshoots:
            assert response is not None
            why = f"upload undoes the model's movement {response.strength:.3g} times, above the "
            why += f"limit of {self.overshoot:g}"
        else:
            pull = "" if response is None else f", response {response.correlation:.2f}"
            why = f"upload is {times:.3g} times the median client's longest{pull}: no objection"
        if decision == "evicted":
            return (
                f"evidence {one.evidence:.3g} exceeds {one.limit:.3g} after {one.rounds} rounds "
                f"({self.odds}); {why}"
            )
        return f"{why}; evidence {one.evidence:.3g} of {one.limit:.3g}"
