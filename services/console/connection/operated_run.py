"""A run of a federation, for an operator who reads the run's state or controls the run."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from rampart_fl.services.console.connection.aggregator_connection import (
    AggregatorConnection,
    segment,
)
from rampart_fl.shared.errors import RampartError, Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.clients import Proposal
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.mixing import decode_mixing
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.protocol.runs import Member, RunInfo, RunStatus
from rampart_fl.shared.protocol.stored_rounds import StoredRound, VerdictMatrix

PAGE = 100
"""Number of rounds whose records one response contains."""
POLL = 0.05
"""Seconds between requests that check whether a run has started."""


class RunUnfinished(RampartError):
    """A run failed or was cancelled, so it has no final results."""

    slug = "run-unfinished"
    title = "The run did not finish"


def require_finished(info: RunInfo) -> None:
    """Refuses a run that has ended in a state other than `finished`.

    Raises:
        RunUnfinished: the run failed or was cancelled; the message states the reason.
    """
    if info.state != "finished":
        raise RunUnfinished(f"run {info.run} did not finish ({info.state}): {info.reason}")


class OperatedRun:
    """Reads the state of one run, and sends commands to the run.

    Args:
        connection: an operator's connection to the run's federation.
        run: the run's id.
    """

    def __init__(self, connection: AggregatorConnection, run: str) -> None:
        self.connection = connection
        self.id = run

    def _path(self, resource: str) -> str:
        """The URL path of one of the run's resources, such as its events."""
        return f"/v1/runs/{segment(self.id)}/{resource}"

    def info(self) -> RunInfo:
        """The run's state, its round, and what it waits for."""
        return self.connection.ask(RunInfo, "GET", f"/v1/runs/{segment(self.id)}")

    def await_start(
        self, patience: float = 60.0, tell: Callable[[RunInfo], object] | None = None
    ) -> RunInfo:
        """Waits until the run has started, or has ended without starting.

        Args:
            patience: maximum waiting time in seconds.
            tell: function that gets the queued run, first as soon as `waits_for` says what the run
                waits for, and then whenever `waits_for` changes.
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

    def experiment(self) -> Experiment:
        """The experiment of the run."""
        tables = self.connection.ask(dict[str, Any], "GET", self._path("experiment"))
        return Experiment.from_tables(tables)

    def model(self, name: str) -> bytes:
        """One of the run's models in the safetensors format; `name` is its digest or "global"."""
        return self.connection.request("GET", self._path(f"models/{name}")).content

    def status(self) -> RunStatus:
        """The current status of the run."""
        return self.connection.ask(RunStatus, "GET", self._path("rounds/current"))

    def rounds(self, since: int = 0, limit: int = 1000, mixing: bool = True) -> list[RoundRecord]:
        """The records of `limit` rounds, starting with round `since`.

        Rounds that have not ended, and rounds with deleted records, are left out.

        Args:
            since: number of the first round to return.
            limit: the number of rounds.
            mixing: whether to include the weights with which each round's models were mixed.
        """
        which = {"since": since, "limit": limit}
        records = self.connection.ask(list[StoredRound], "GET", self._path("rounds"), params=which)
        return [self._whole(record, mixing) for record in records]

    def records(self, first: int, last: int, mixing: bool = True) -> Iterator[RoundRecord]:
        """Yields the records of rounds `first` to `last`, page by page; skips deleted records."""
        # Request all pages, even after a short or empty page: the aggregator may have deleted the
        # records of that page.
        for since in range(first, last + 1, PAGE):
            yield from self.rounds(since, min(PAGE, last + 1 - since), mixing)

    def _whole(self, record: StoredRound, mixing: bool) -> RoundRecord:
        """A round's full record; it contains the mixing weights if `mixing` is true."""
        facts = dict(record)
        digest = facts.pop("mixing_digest")
        if mixing and digest is not None:
            answer = self.connection.request("GET", self._path(f"rounds/{record.round}/weights"))
            facts["mixing"] = decode_mixing(answer.content)
        return RoundRecord(**facts)

    def verdicts(self, first: int, last: int, client: str | None = None) -> VerdictMatrix:
        """The verdicts on all clients, or on one of them, in a range of rounds."""
        which = {"from": first, "to": last, **({} if client is None else {"client": client})}
        return self.connection.ask(VerdictMatrix, "GET", self._path("verdicts"), params=which)

    def members(self, client: str | None = None) -> list[Member]:
        """All clients that answered the run's offer, and all members and barred clients of the run.

        If `client` is given, the result contains at most this client.
        """
        which = {} if client is None else {"client": client}
        return self.connection.ask(list[Member], "GET", self._path("members"), params=which)

    def evaluations(self) -> dict[str, dict[str, float]]:
        """The metrics of the final models, measured by the clients and keyed by client."""
        return self.connection.ask(dict[str, dict[str, float]], "GET", self._path("evaluations"))

    def decide(self, client: str, verb: str, reason: str) -> Member:
        """Evicts or reinstates a client of the run, or confirms or dismisses a proposal."""
        path = self._path(f"clients/{segment(client)}/{verb}")
        return self.connection.ask(Member, "POST", path, json={"reason": reason})

    def proposals(self) -> list[Proposal]:
        """The proposed evictions that an operator has not yet confirmed or dismissed."""
        return self.connection.ask(list[Proposal], "GET", self._path("proposals"))

    def switch(self, mode: Mode, reason: str) -> RunStatus:
        """Sets the mode of the run, which limits how severe the decisions on clients may be."""
        body = {"mode": mode, "reason": reason}
        return self.connection.ask(RunStatus, "POST", self._path("mode"), json=body)

    def steer(self, verb: str, reason: str = NO_REASON) -> RunInfo:
        """Pauses, resumes or stops the run."""
        return self.connection.ask(RunInfo, "POST", self._path(verb), json={"reason": reason})

    def events(self, after: str | None = None, ticks: bool = False) -> Iterator[dict[str, str]]:
        """Yields events of the run as they happen, each with its id, until the connection ends.

        Args:
            after: id of the last event that was already read; the stream continues after it.
            ticks: whether to yield an empty event for each `tick`. The aggregator sends a `tick` if
                no event happens for two seconds.
        Raises:
            OperatorRefused: the aggregator refuses the request.
            Unavailable: the stream cannot be opened within the `patience` of the connection.
            StreamLost: the connection is lost.
            ConfigurationError: the URL redirects, or does not belong to an aggregator.
        """
        headers = {} if after is None else {"Last-Event-ID": after}
        for event in self.connection.server_events(self._path("events"), headers):
            if event.event != "tick":
                yield {"id": event.id, **event.json()}
            elif ticks:
                yield {}

    def delete(self, reason: str = NO_REASON) -> None:
        """Deletes the run with its records and models."""
        self.connection.request("DELETE", f"/v1/runs/{segment(self.id)}", params={"reason": reason})
