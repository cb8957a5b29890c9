"""One client of a process: its identity, and the runs in which it takes part."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rampart_fl.shared.agent.acceptance import LONGEST_REASON, OfferAnswer, Policy, decide
from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.agent_context import AgentContext, Build, Check
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.client import AggregatorClient, RequestRefused
from rampart_fl.shared.agent.former_runs import tidy_former_runs
from rampart_fl.shared.agent.former_state import adopt_former_state
from rampart_fl.shared.agent.identity import Identity, establish, lock_folder, token_renewal
from rampart_fl.shared.agent.learning_client import RunFiles, client_experiment
from rampart_fl.shared.agent.loop import ParticipantError, of_disk, own_errors, participate
from rampart_fl.shared.agent.membership import next_run, sit_out
from rampart_fl.shared.agent.run_experiment import run_experiment, run_folder
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families import plugins
from rampart_fl.shared.learning.data.client_data import client_data_from_file
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.protocol.refusals import Evicted, NotMember, RunNotFound

log = logging.getLogger(__name__)
PAUSE = 30.0
"""Seconds until a client tries again after its disk has failed, for example because it was full."""
BRIEF = 2.0
"""Seconds until a client asks for its next run after it has lost its place in a run."""
NO_PLACE = {RunNotFound.slug, NotMember.slug, Evicted.slug}
"""The kinds of refusals with which the aggregator answers a client that has no place in the run.
For example, an operator may have deleted the run while the client was suspended."""


@dataclass(frozen=True, eq=False)
class HostedClient:
    """One client of this process, which takes part in one run after another.

    Args:
        settings: settings of the process.
        policy: decides in which runs the client takes part.
        build: builds the participant of a run.
        check: raises an error if the client must decline an experiment.
        thread: the executor for the client's computations.
        position: the client's position among the clients of the process.
    """

    settings: AgentSettings
    policy: Policy
    build: Build
    check: Check | None
    thread: ThreadPoolExecutor
    position: int

    async def live(self, folder: Path, join_token: str | None, leaves: bool) -> None:
        """Takes part in runs under one identity.

        The method returns when the client is barred from the federation. If `leaves` is set, the
        method also returns when the client is evicted from a run. After an error of the disk, the
        client begins again: it locks its folder, reads its identity, and asks for its next run.
        """
        while True:
            try:
                with lock_folder(folder):
                    await self._live(folder, join_token, leaves)
                    return
            except OSError as error:
                if not of_disk(error):
                    raise
                where = {"position": self.position}
                log.error("the disk failed; trying again: %s", error, extra=where)
            await asyncio.sleep(PAUSE)

    async def _live(self, folder: Path, join_token: str | None, leaves: bool) -> None:
        """Joins the federation if necessary, and takes part in runs; the folder must be locked."""
        settings = self.settings
        verify = str(settings.ca_certificate) if settings.ca_certificate else None
        identity = await establish(
            settings.aggregator, folder, join_token, verify=verify, patience=settings.patience
        )
        assert identity.client_id is not None
        connection = AggregatorClient(
            settings.aggregator,
            identity.token,
            settings.patience,
            verify,
            settings.compress,
            settings.ticket_wait,
        )
        try:
            activity, last = ActivityLog(folder), None
            async with token_renewal(connection, folder):
                while True:
                    decide = partial(self._decide, activity)
                    try:
                        last = await next_run(connection, decide, identity.client_id, last)
                        if not last.run:
                            return
                        last = await self._take_part(connection, identity, folder, activity, last)
                    except RequestRefused as refusal:
                        if refusal.reason not in NO_PLACE:
                            raise
                        where = {"client": identity.client_id}
                        log.warning("the client lost its run: %s", refusal, extra=where)
                        await asyncio.sleep(BRIEF)
                        last = None
                        continue
                    if leaves and last.kind == "evicted":
                        return
        finally:
            await connection.close()

    async def _decide(
        self, activity: ActivityLog, run: str, part: dict[str, Any]
    ) -> tuple[bool, str, int | None]:
        """Decides whether to accept a run; returns the decision, a reason, and the wanted slot."""
        try:
            experiment = client_experiment(part)
            answer = decide(self.policy, experiment)
            if answer.accept and self.check is not None:
                self.check(experiment)
            own = self._own_samples(answer)
            if answer.accept and own is not None:
                answer = await self._check_samples(own, experiment, answer)
        except RampartError as error:
            answer = OfferAnswer(False, error.detail[:LONGEST_REASON])
        activity.record_decision(run, answer)
        return answer.accept, answer.reason, self.settings.hosted[self.position]

    async def _check_samples(
        self, own: Path, experiment: Experiment, answer: OfferAnswer
    ) -> OfferAnswer:
        """Adds the file of the client's own samples to the answer, or declines if they do not fit.

        The reason that the aggregator gets does not reveal the name or the content of the file.
        """
        dataset, loop = datasets.parse(experiment.data.dataset), asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self.thread, client_data_from_file, own, dataset)
        except ConfigurationError as error:
            log.error("the client's own data cannot be used: %s", error)
            return OfferAnswer(False, "the client's own data do not fit this experiment")
        return replace(answer, data_file=own)

    def _own_samples(self, answer: OfferAnswer) -> Path | None:
        """The file with the client's samples; None if the client uses its slot's data.

        If the owner's file has the table `data`, this table determines the samples. Without the
        table `data`, `settings.data_file` names the file with the samples.
        """
        return self.settings.data_file if self.policy.data is None else answer.data_file

    async def _take_part(
        self,
        connection: AggregatorClient,
        identity: Identity,
        folder: Path,
        activity: ActivityLog,
        first: Ticket,
    ) -> Ticket:
        """Takes part in one run; returns the last ticket.

        The method checks the experiment against the owner's file again. The owner may have changed
        the file and restarted the process after the client accepted the run. The experiment's
        settings may also differ from the settings in the aggregator's offer.
        """
        own = run_folder(folder, first.run)
        adopt_former_state(folder, own, first)
        await asyncio.get_running_loop().run_in_executor(
            self.thread,
            tidy_former_runs,
            own.parent,
            first.run,
            self.settings.personal_models_kept,
        )
        experiment, sample_cap = await run_experiment(connection, first.run, own)
        answer = decide(self.policy, experiment)
        if not answer.accept:
            activity.record_decision(first.run, answer)
            where = {"client": identity.client_id, "run": first.run}
            log.warning("the client does not train in this run: %s", answer.reason, extra=where)
            return await sit_out(connection, first)
        assert first.slot is not None
        context = AgentContext(
            self.settings,
            first.run,
            experiment,
            identity,
            identity.sample_cap or sample_cap,
            own,
            self.thread,
            self.position,
            first.slot,
            activity,
            self._own_samples(answer),
        )
        try:
            with own_errors(), plugins.record_lookups(experiment.packages):
                participant = await self.build(context)
            last = await participate(connection, participant, context.client, first.run, activity)
        except ParticipantError as error:
            if not self.settings.stay_after_errors:
                raise error.cause from None
            where = {"client": identity.client_id, "run": first.run}
            log.error(
                "the client cannot train; it waits for the run's end",
                extra=where,
                exc_info=error.cause,
            )
            return await sit_out(connection, first)
        if last.kind != "evicted":
            # Keep the files of an evicted or barred client, because it can be reinstated while the
            # run goes on. A reinstated client needs its state, which includes the privacy budget
            # that it has spent.
            RunFiles(own).finish()
        return last
