"""Hosts several clients in one process: their identities, their data, and one training thread."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rampart_fl.shared.agent.acceptance import LONGEST_REASON, Answer, Policy, decide
from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.former_state import adopt_former_state
from rampart_fl.shared.agent.identity import Identity, establish, lock_folder, token_renewal
from rampart_fl.shared.agent.learning_client import LearningClient, RunFiles, client_experiment
from rampart_fl.shared.agent.loop import Participant, participate
from rampart_fl.shared.agent.membership import next_run, sit_out
from rampart_fl.shared.agent.run_experiment import run_experiment, run_folder
from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families import plugins
from rampart_fl.shared.learning.data.client_data import (
    ClientData,
    client_data,
    client_data_from_file,
)
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.members import build_of_clients
from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.runtime.device import device as named_device

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AgentContext:
    """Everything needed to build one client of a process for one run.

    Args:
        settings: settings of the process.
        run: the run's id.
        experiment: the part of the experiment that clients know.
        identity: the client's identity.
        sample_cap: the highest number of samples that the client may claim.
        folder: where the client stores its state for this run.
        thread: the executor for the client's computations; all clients of a process share it.
        position: the client's position among the clients of the process.
        slot: number of the client's slot, which determines the client's part of the experiment's
            data.
        activity: the client's own log.
        data_file: file with the client's own samples; None if the client uses the samples of its
            slot.
    """

    settings: AgentSettings
    run: str
    experiment: Experiment
    identity: Identity
    sample_cap: int
    folder: Path
    thread: ThreadPoolExecutor
    position: int
    slot: int
    activity: ActivityLog
    data_file: Path | None = None

    @property
    def client(self) -> str:
        """The client's id."""
        assert self.identity.client_id is not None
        return self.identity.client_id

    async def data(self) -> ClientData:
        """The client's samples, from its own file or from its slot's part of the data set."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.thread, self._data)

    def _data(self) -> ClientData:
        if self.data_file is None:
            return client_data(self.experiment.data, self.slot, self.experiment.seed)
        return client_data_from_file(self.data_file, datasets.parse(self.experiment.data.dataset))


Build = Callable[[AgentContext], Awaitable[Participant]]
"""A function that builds the participant from an `AgentContext`."""


Check = Callable[[Experiment], None]
"""A function that raises an error if clients must decline an experiment."""


def build_honest_client(settings: AgentSettings) -> Build:
    """A `Build` function for honest clients."""

    async def build(context: AgentContext) -> LearningClient:
        settings.check_trust(context.experiment)
        return LearningClient(
            context.experiment,
            context.client,
            await context.data(),
            context.folder,
            context.sample_cap,
            context.thread,
            settings.upload_dtype,
            context.activity,
            settings.device,
        )

    return build


def check_capabilities(settings: AgentSettings) -> Check:
    """A `Check` that raises an error if an experiment needs untrusted code or a missing package."""

    def check(experiment: Experiment) -> None:
        settings.check_trust(experiment)
        build_of_clients(experiment)

    return check


async def host(
    settings: AgentSettings, build: Build, rejoins: bool = False, check: Check | None = None
) -> None:
    """Runs all clients of this process until each of them is barred from the federation.

    After that, if `settings.stay_when_barred` is set, the function does not return. Instead, it
    waits until it is cancelled.

    Args:
        settings: settings of the process.
        build: builds the participants; called again for each run.
        rejoins: whether an evicted client joins again, each time with its next join token.
        check: raises an error for an experiment that the clients must decline, even if the owner's
            file (`settings.accept`) allows the experiment.
    Raises:
        ConfigurationError: the device cannot be used.

    A client that fails does not stop the other clients. For example, a client fails if its token is
    revoked or its data cannot be read. If a client failed, the process fails after all clients have
    stopped.
    """
    torch.set_num_threads(settings.threads)
    named_device(settings.device)
    policy = Policy.load(settings.accept)
    thread = ThreadPoolExecutor(1, thread_name_prefix="training")
    try:
        ends = await asyncio.gather(
            *(
                _run_client(
                    HostedClient(settings, policy, build, check, thread, position), rejoins, token
                )
                for position, token in enumerate(settings.tokens())
            ),
            return_exceptions=True,
        )
    finally:
        thread.shutdown(wait=False, cancel_futures=True)
    failures = [end for end in ends if isinstance(end, Exception)]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(ends)} clients failed", failures)
    if settings.stay_when_barred:
        log.warning("all clients of this process are barred; the process waits for SIGTERM")
        await asyncio.Event().wait()


async def _run_client(client: "HostedClient", rejoins: bool, join_token: str | None) -> None:
    """Runs one client; a client that rejoins gets a new identity after each eviction."""
    settings, position = client.settings, client.position
    folder = settings.state / f"client-{position}"
    further = settings.further_tokens(position) if rejoins else []
    try:
        for life, token in enumerate([join_token, *further], 1):
            own = folder if life == 1 else folder.with_name(f"{folder.name}-life-{life}")
            await client.live(own, token, leaves=life <= len(further))
    except Exception as error:  # Log which client failed, and re-raise the error.
        where = {"position": position, "slot": settings.hosted[position]}
        log.error("a client failed: %s: %s", type(error).__name__, error, extra=where)
        raise


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
        method also returns when the client is evicted from a run.
        """
        settings = self.settings
        verify = str(settings.ca_certificate) if settings.ca_certificate else None
        with lock_folder(folder):
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
            activity, last = ActivityLog(folder), None
            try:
                async with token_renewal(connection, folder):
                    while True:
                        decide = partial(self._decide, activity)
                        last = await next_run(connection, decide, identity.client_id, last)
                        if not last.run:
                            return
                        last = await self._take_part(connection, identity, folder, activity, last)
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
        except RampartError as error:
            answer = Answer(False, error.detail[:LONGEST_REASON])
        activity.record_decision(run, answer)
        return answer.accept, answer.reason, self.settings.hosted[self.position]

    def _own_samples(self, answer: Answer) -> Path | None:
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
        the file since the client accepted the run. The experiment's settings may also differ from
        the settings in the aggregator's offer.
        """
        own = run_folder(folder, first.run)
        adopt_former_state(folder, own, first)
        experiment, sample_cap = await run_experiment(connection, first.run, own)
        answer = decide(self.policy, experiment)
        if not answer.accept:
            activity.record_decision(first.run, answer)
            where = {"client": identity.client_id, "run": first.run}
            log.warning("sits out: %s", answer.reason, extra=where)
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
        with plugins.record_lookups(experiment.packages):
            participant = await self.build(context)
        last = await participate(connection, participant, context.client, first.run, activity)
        if last.kind == "done" or last.run != first.run:
            RunFiles(own).finish()
        return last
