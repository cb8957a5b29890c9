"""An operator's connection to an aggregator, with methods for the whole federation."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from rampart_fl.services.console.connection.aggregator_connection import (
    AggregatorConnection,
    OperatorRefused,
    segment,
)
from rampart_fl.services.console.connection.operated_run import OperatedRun
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.audit import AuditEntry
from rampart_fl.shared.protocol.clients import ClientInfo
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.protocol.messages import JoinTokens
from rampart_fl.shared.protocol.operators import OperatorInfo, OperatorToken, Role
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.protocol.runs import LIVE, RunInfo
from rampart_fl.shared.runtime.tokens import mint, token_hash

NO_LABELS: Mapping[str, str] = {}
PAGE = 500
"""Maximum number of items in one response."""


class Operator(AggregatorConnection):
    """Reads the state of a federation, and sends commands to it; `run` returns one of its runs."""

    def run(self, run: str | None = None) -> OperatedRun:
        """One of the federation's runs; the method does not check that a run has the given id.

        Args:
            run: the run's id; by default, the current run, or the newest run if no run is current.
        Raises:
            OperatorRefused: no id is given, and the federation has no runs.
        """
        if run is None:
            infos = self.runs()
            if not infos:
                raise OperatorRefused("the federation has no runs; submit one with `rampart run`")
            live = [info for info in infos if info.state in LIVE]
            run = (live or infos)[-1].run
        return OperatedRun(self, run)

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
            page = self.ask(list[RunInfo], "GET", "/v1/runs", params=which)
            infos = page + infos
            if len(page) < wanted:
                break
            before = page[0].run
        return infos

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
            wait_seconds: seconds after which the aggregator cancels the run if its first round has
                not begun; None sets no limit.
            reason: why the experiment is submitted; the audit log keeps this text.
        """
        body = {
            "experiment": experiment.tables(),
            "name": name,
            "submission": submission or uuid.uuid4().hex,
            "wait_seconds": wait_seconds,
            "reason": reason,
        }
        return self.ask(RunInfo, "POST", "/v1/runs", json=body, timeout=60)

    def check(self, experiment: Experiment) -> Estimate:
        """Checks that the federation can run an experiment; estimates memory, disk and traffic."""
        body = {"experiment": experiment.tables()}
        return self.ask(Estimate, "POST", "/v1/runs/check", json=body, timeout=60)

    def clients(self) -> list[ClientInfo]:
        """All clients of the federation, sorted by id."""
        infos = list[ClientInfo]()
        while True:
            which = {"limit": PAGE, **({"after": infos[-1].client_id} if infos else {})}
            page = self.ask(list[ClientInfo], "GET", "/v1/clients", params=which)
            infos += page
            if len(page) < PAGE:
                return infos

    def client(self, client: str) -> ClientInfo:
        """One client of the federation."""
        return self.ask(ClientInfo, "GET", f"/v1/clients/{segment(client)}")

    def mint(
        self,
        client_ids: list[str],
        lifetime: float = 86_400,
        reason: str = NO_REASON,
        labels: Mapping[str, str] = NO_LABELS,
        sample_cap: int | None = None,
    ) -> JoinTokens:
        """Makes a join token for each client id; each token is bound to one client id."""
        return self._mint(lifetime, reason, labels, sample_cap, client_ids=client_ids)

    def mint_unbound(
        self,
        count: int,
        lifetime: float = 86_400,
        reason: str = NO_REASON,
        labels: Mapping[str, str] = NO_LABELS,
        sample_cap: int | None = None,
    ) -> JoinTokens:
        """Makes join tokens that any client may use."""
        return self._mint(lifetime, reason, labels, sample_cap, count=count)

    def _mint(
        self,
        lifetime: float,
        reason: str,
        labels: Mapping[str, str],
        sample_cap: int | None,
        **tokens: Any,
    ) -> JoinTokens:
        """Makes join tokens; the request has a new key, so the connection can repeat it safely."""
        body = {"lifetime": lifetime, "reason": reason, "labels": dict(labels), "key": mint()}
        body |= {} if sample_cap is None else {"sample_cap": sample_cap}
        return self.ask(JoinTokens, "POST", "/v1/join-tokens", json={**body, **tokens})

    def revoke_join_token(self, token: str, reason: str = NO_REASON) -> None:
        """Revokes a join token that no client has used."""
        path = f"/v1/join-tokens/{token_hash(token)}"
        self.request("DELETE", path, params={"reason": reason})

    def decide_everywhere(self, client: str, verb: str, reason: str) -> ClientInfo:
        """Bars a client from the whole federation (`evict`), or readmits it (`reinstate`)."""
        path = f"/v1/clients/{segment(client)}/{verb}"
        return self.ask(ClientInfo, "POST", path, json={"reason": reason})

    def label(self, client: str, labels: Mapping[str, str], reason: str = NO_REASON) -> ClientInfo:
        """Replaces a client's labels."""
        body = {"labels": dict(labels), "reason": reason}
        return self.ask(ClientInfo, "PUT", f"/v1/clients/{segment(client)}/labels", json=body)

    def revoke(self, client: str, reason: str = NO_REASON) -> None:
        """Revokes a client's token immediately."""
        self.request("DELETE", f"/v1/clients/{segment(client)}/token", params={"reason": reason})

    def operators(self) -> list[OperatorInfo]:
        """All named operators."""
        return self.ask(list[OperatorInfo], "GET", "/v1/operators")

    def add_operator(
        self, name: str, role: Role, lifetime: float | None = None, reason: str = NO_REASON
    ) -> OperatorToken:
        """Makes a token for an operator; without a `lifetime`, the token is valid until revoked."""
        body = {"name": name, "role": role, "lifetime_seconds": lifetime, "reason": reason}
        body["key"] = mint()
        return self.ask(OperatorToken, "POST", "/v1/operators", json=body)

    def revoke_operator(self, name: str, reason: str = NO_REASON) -> None:
        """Revokes an operator's token immediately."""
        self.request("DELETE", f"/v1/operators/{segment(name)}", params={"reason": reason})

    def audit(self, since: int = 0) -> Iterator[AuditEntry]:
        """Yields the entries of the audit log, starting with number `since`."""
        while True:
            which = {"since": since, "limit": PAGE}
            page = self.ask(list[AuditEntry], "GET", "/v1/audit", params=which)
            yield from page
            since += len(page)
            if len(page) < PAGE:
                return
