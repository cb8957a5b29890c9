"""An operator's connection to an aggregator, with methods for a federation and for its runs."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

from rampart_fl.services.console.aggregator_connection import (
    AggregatorConnection,
    OperatorRefused,
    segment,
)
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.audit import AuditEntry
from rampart_fl.shared.protocol.clients import ClientInfo, Proposal
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.protocol.messages import JoinTokens, RoundRecord
from rampart_fl.shared.protocol.mixing import decode_mixing
from rampart_fl.shared.protocol.operators import OperatorInfo, OperatorToken, Role, WhoAmI
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.protocol.runs import LIVE, Member, RunInfo, RunStatus
from rampart_fl.shared.protocol.stored_rounds import StoredRound, VerdictMatrix
from rampart_fl.shared.runtime.tokens import mint, token_hash

NO_LABELS: Mapping[str, str] = {}
PAGE = 500
"""Maximum number of items in one response."""
POLL = 0.05
"""Seconds between requests that check whether a run has started."""


class Operator(AggregatorConnection):
    """Reads the state of a federation and of its runs, and sends commands to the federation.

    Args:
        url: URL of the aggregator.
        token: the operator token.
        ca: path of a CA bundle for TLS.
        patience: seconds to wait for an aggregator that does not answer.
        run: id of the chosen run; methods for a single run act on it. By default, the first method
            that needs a run chooses the current run, or the newest run if no run is current.
    """

    def __init__(
        self,
        url: str,
        token: str,
        ca: str | None = None,
        patience: float = 10.0,
        run: str | None = None,
    ) -> None:
        super().__init__(url, token, ca, patience)
        self._run = run

    @property
    def run(self) -> str:
        """The id of the chosen run; methods for a single run act on it.

        Raises:
            OperatorRefused: the federation has no runs.
        """
        if self._run is None:
            infos = self.runs()
            if not infos:
                raise OperatorRefused("the federation has no runs; submit one with `rampart run`")
            live = [info for info in infos if info.state in LIVE]
            self._run = (live or infos)[-1].run
        return self._run

    @run.setter
    def run(self, run: str) -> None:
        self._run = run

    def _of_run(self, path: str) -> str:
        """The URL path of one of the run's resources, such as its events."""
        return f"/v1/runs/{segment(self.run)}/{path}"

    def runs(self, before: str | None = None, last: int | None = None) -> list[RunInfo]:
        """The runs, in the order of submission.

        Args:
            before: id of a run; only runs that were submitted before this run are listed.
            last: how many of the newest runs to list; None lists all.
        """
        infos = list[RunInfo]()
        while last is None or len(infos) < last:
            wanted = PAGE if last is None else min(PAGE, last - len(infos))
            which = {"limit": wanted, **({} if before is None else {"before": before})}
            page = self._ask(list[RunInfo], "GET", "/v1/runs", params=which)
            infos = page + infos
            if len(page) < wanted:
                break
            before = page[0].run
        return infos

    def info(self, run: str | None = None) -> RunInfo:
        """One run: its state, its round, and what it waits for."""
        return self._ask(RunInfo, "GET", f"/v1/runs/{segment(run or self.run)}")

    def submit(
        self,
        experiment: Experiment,
        name: str | None = None,
        submission: str | None = None,
        wait_seconds: float | None = None,
        reason: str = NO_REASON,
    ) -> RunInfo:
        """Submits an experiment; its run starts after all runs submitted earlier have ended.

        Args:
            experiment: the experiment.
            name: first part of the run's id; by default, the experiment's name.
            submission: a key; submissions with the same key create only one run.
            wait_seconds: the aggregator cancels the run if the run's first round has not begun
                after this number of seconds; None sets no limit.
            reason: why the experiment is submitted; the audit log keeps this text.
        """
        body = {
            "experiment": experiment.tables(),
            "name": name,
            "submission": submission or uuid.uuid4().hex,
            "wait_seconds": wait_seconds,
            "reason": reason,
        }
        return self._ask(RunInfo, "POST", "/v1/runs", json=body, timeout=60)

    def await_start(
        self, patience: float = 60.0, tell: Callable[[RunInfo], object] | None = None
    ) -> RunInfo:
        """Waits until the run has started, or has ended without starting.

        Args:
            patience: maximum waiting time in seconds.
            tell: function that is called with the queued run, and again whenever the run's
                `waits_for` changes.
        Raises:
            Unavailable: the run is still queued after `patience` seconds.
        """
        give_up, cause = time.monotonic() + patience, ""
        while True:
            info = self.info()
            if info.state != "queued":
                return info
            if tell is not None and info.waits_for != cause:
                tell(info)
                cause = info.waits_for
            if time.monotonic() > give_up:
                raise Unavailable(f"run {info.run} waits for {info.waits_for}")
            time.sleep(POLL)

    def about(self, run: str) -> "Operator":
        """A copy of this object that acts on another run, over the same connection."""
        other = copy(self)
        other._run = run
        return other

    def check(self, experiment: Experiment) -> Estimate:
        """Checks that the federation can run an experiment; estimates memory, disk and traffic."""
        body = {"experiment": experiment.tables()}
        return self._ask(Estimate, "POST", "/v1/runs/check", json=body, timeout=60)

    def experiment(self) -> Experiment:
        """The experiment of the run."""
        tables = self._ask(dict[str, Any], "GET", self._of_run("experiment"))
        return Experiment.from_tables(tables)

    def model(self, name: str) -> bytes:
        """One of the run's models in the safetensors format; `name` is its digest or "global"."""
        return self.request("GET", self._of_run(f"models/{name}")).content

    def delete(self, run: str, reason: str = NO_REASON) -> None:
        """Deletes a run with its records and models."""
        self.request("DELETE", f"/v1/runs/{segment(run)}", params={"reason": reason})

    def status(self) -> RunStatus:
        """The current status of the run."""
        return self._ask(RunStatus, "GET", self._of_run("rounds/current"))

    def rounds(self, since: int = 0, limit: int = 1000, mixing: bool = True) -> list[RoundRecord]:
        """At most `limit` records of finished rounds, starting with round `since`.

        Args:
            since: number of the first round to return.
            limit: the maximum number of records.
            mixing: whether to include the weights with which each round's models were mixed.
        """
        which = {"since": since, "limit": limit}
        records = self._ask(list[StoredRound], "GET", self._of_run("rounds"), params=which)
        return [self._whole(record, mixing) for record in records]

    def _whole(self, record: StoredRound, mixing: bool) -> RoundRecord:
        """A round's full record; it contains the mixing weights if `mixing` is true."""
        facts = dict(record)
        digest = facts.pop("mixing_digest")
        if mixing and digest is not None:
            answer = self.request("GET", self._of_run(f"rounds/{record.round}/weights"))
            facts["mixing"] = decode_mixing(answer.content)
        return RoundRecord(**facts)

    def verdicts(self, first: int, last: int, client: str | None = None) -> VerdictMatrix:
        """The verdicts on all clients, or on one of them, in a range of rounds."""
        which = {"from": first, "to": last, **({} if client is None else {"client": client})}
        return self._ask(VerdictMatrix, "GET", self._of_run("verdicts"), params=which)

    def members(self, client: str | None = None) -> list[Member]:
        """All clients that answered the run's offer, and all members and barred clients of the run.

        If `client` is given, the result contains at most this client.
        """
        which = {} if client is None else {"client": client}
        return self._ask(list[Member], "GET", self._of_run("members"), params=which)

    def evaluations(self) -> dict[str, dict[str, float]]:
        """The metrics of the final models, measured by the clients and keyed by client."""
        return self._ask(dict[str, dict[str, float]], "GET", self._of_run("evaluations"))

    def decide(self, client: str, verb: str, reason: str) -> Member:
        """Evicts or reinstates a client of the run, or confirms or dismisses a proposal."""
        path = self._of_run(f"clients/{segment(client)}/{verb}")
        return self._ask(Member, "POST", path, json={"reason": reason})

    def proposals(self) -> list[Proposal]:
        """The proposed evictions that an operator has not yet confirmed or dismissed."""
        return self._ask(list[Proposal], "GET", self._of_run("proposals"))

    def switch(self, mode: Mode, reason: str) -> RunStatus:
        """Sets the mode of the run, which limits how severe the decisions on clients may be."""
        body = {"mode": mode, "reason": reason}
        return self._ask(RunStatus, "POST", self._of_run("mode"), json=body)

    def steer(self, verb: str, reason: str = NO_REASON) -> RunInfo:
        """Pauses, resumes or stops the run."""
        return self._ask(RunInfo, "POST", self._of_run(verb), json={"reason": reason})

    def events(self, after: str | None = None, ticks: bool = False) -> Iterator[dict[str, str]]:
        """Yields events of the run as they happen, each with its id, until the connection ends.

        Args:
            after: id of the last event that was already read; the stream continues after it.
            ticks: whether to yield an empty event for each `tick`, which the aggregator sends if no
                event happens for two seconds.
        Raises:
            OperatorRefused: the aggregator refuses the request.
            Unavailable: the stream cannot be opened within the `patience` of this object.
            StreamLost: the connection is lost.
            ConfigurationError: the URL redirects, or does not belong to an aggregator.
        """
        headers = {} if after is None else {"Last-Event-ID": after}
        for event in self._events(self._of_run("events"), headers):
            if event.event != "tick":
                yield {"id": event.id, **event.json()}
            elif ticks:
                yield {}

    # -- the federation: clients, tokens, operators and the audit log --

    def clients(self) -> list[ClientInfo]:
        """All clients of the federation, sorted by id."""
        infos = list[ClientInfo]()
        while True:
            which = {"limit": PAGE, **({"after": infos[-1].client_id} if infos else {})}
            page = self._ask(list[ClientInfo], "GET", "/v1/clients", params=which)
            infos += page
            if len(page) < PAGE:
                return infos

    def client(self, client: str) -> ClientInfo:
        """One client of the federation."""
        return self._ask(ClientInfo, "GET", f"/v1/clients/{segment(client)}")

    def mint(
        self,
        client_ids: list[str],
        lifetime: float = 86_400,
        reason: str = NO_REASON,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> JoinTokens:
        """Makes a join token for each client id; each token is bound to one client id."""
        return self._mint(lifetime, reason, labels, client_ids=client_ids)

    def mint_unbound(
        self,
        count: int,
        lifetime: float = 86_400,
        reason: str = NO_REASON,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> JoinTokens:
        """Makes join tokens that any client may use."""
        return self._mint(lifetime, reason, labels, count=count)

    def _mint(
        self, lifetime: float, reason: str, labels: Mapping[str, str], **tokens: Any
    ) -> JoinTokens:
        """Makes join tokens; a new key lets the connection repeat the request."""
        body = {"lifetime": lifetime, "reason": reason, "labels": dict(labels), "key": mint()}
        return self._ask(JoinTokens, "POST", "/v1/join-tokens", json={**body, **tokens})

    def revoke_join_token(self, token: str, reason: str = NO_REASON) -> None:
        """Revokes a join token that no client has used."""
        path = f"/v1/join-tokens/{token_hash(token)}"
        self.request("DELETE", path, params={"reason": reason})

    def decide_everywhere(self, client: str, verb: str, reason: str) -> ClientInfo:
        """Bars a client from the whole federation (`evict`), or readmits it (`reinstate`)."""
        path = f"/v1/clients/{segment(client)}/{verb}"
        return self._ask(ClientInfo, "POST", path, json={"reason": reason})

    def label(self, client: str, labels: Mapping[str, str], reason: str = NO_REASON) -> ClientInfo:
        """Replaces a client's labels."""
        body = {"labels": dict(labels), "reason": reason}
        return self._ask(ClientInfo, "PUT", f"/v1/clients/{segment(client)}/labels", json=body)

    def revoke(self, client: str, reason: str = NO_REASON) -> None:
        """Revokes a client's token immediately."""
        self.request("DELETE", f"/v1/clients/{segment(client)}/token", params={"reason": reason})

    def whoami(self) -> WhoAmI:
        """The name and the role of this connection's operator."""
        return self._ask(WhoAmI, "GET", "/v1/whoami")

    def operators(self) -> list[OperatorInfo]:
        """All named operators."""
        return self._ask(list[OperatorInfo], "GET", "/v1/operators")

    def add_operator(
        self, name: str, role: Role, lifetime: float | None = None, reason: str = NO_REASON
    ) -> OperatorToken:
        """Makes a token for an operator; without a `lifetime`, the token is valid until revoked."""
        body = {"name": name, "role": role, "lifetime_seconds": lifetime, "reason": reason}
        body["key"] = mint()
        return self._ask(OperatorToken, "POST", "/v1/operators", json=body)

    def revoke_operator(self, name: str, reason: str = NO_REASON) -> None:
        """Revokes an operator's token immediately."""
        self.request("DELETE", f"/v1/operators/{segment(name)}", params={"reason": reason})

    def audit(self, since: int = 0) -> Iterator[AuditEntry]:
        """Yields the entries of the audit log, starting with number `since`."""
        while True:
            which = {"since": since, "limit": PAGE}
            page = self._ask(list[AuditEntry], "GET", "/v1/audit", params=which)
            yield from page
            since += len(page)
            if len(page) < PAGE:
                return
