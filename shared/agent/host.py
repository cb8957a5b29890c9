"""Hosts several clients in one process, with one training thread for all of them."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import torch

from rampart_fl.shared.agent.acceptance import Policy
from rampart_fl.shared.agent.agent_context import AgentContext, Build, Check
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.hosted_client import HostedClient
from rampart_fl.shared.agent.learning_client import LearningClient
from rampart_fl.shared.built_experiment import build_for_clients
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.training.privacy import require_accountant
from rampart_fl.shared.runtime.device import device as named_device

log = logging.getLogger(__name__)


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
        build_for_clients(experiment)
        require_accountant(experiment.training.privacy)

    return check


async def host(
    settings: AgentSettings, build: Build, rejoins: bool = False, check: Check | None = None
) -> None:
    """Runs all clients of this process until each of them is barred from the federation.

    If `settings.stay_when_barred` is set, the function does not return when all clients are barred,
    but waits until it is cancelled.

    Args:
        settings: settings of the process.
        build: builds the participants; called again for each run.
        rejoins: whether an evicted client joins again, each time with its next join token.
        check: raises an error for an experiment that the clients must decline, even if the owner's
            file (`settings.accept`) allows the experiment.
    Raises:
        ConfigurationError: the device cannot be used, or there is no data file.

    A client that fails does not stop the other clients. For example, a client fails if its token is
    revoked or its data cannot be read. If a client failed, the process fails after all clients have
    stopped.
    """
    torch.set_num_threads(settings.threads)
    named_device(settings.device)
    policy = Policy.load(settings.accept)
    if settings.data_file is not None and not settings.data_file.is_file():
        raise ConfigurationError(f"data file {settings.data_file}: there is no such file")
    if settings.join_tokens is not None and not settings.join_tokens.exists():
        log.warning("there is no file %s, so no client can join", settings.join_tokens)
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


async def _run_client(client: HostedClient, rejoins: bool, join_token: str | None) -> None:
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
