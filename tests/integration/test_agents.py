"""Agents between two runs: how they leave one, and how they hear of the next."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.testing import PATIENCE
from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.agent_context import AgentContext, Build
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import build_honest_client
from rampart_fl.shared.agent.host import host as run_agents
from rampart_fl.shared.protocol.messages import Ticket
from tests.integration.in_process_federation import Hold, Hosted, Scripted, experiment, until

Host = Callable[..., Hosted]


@contextmanager
def agent(
    hosted: Hosted, state: Path, hold: Callable[[Ticket], bool]
) -> "Iterator[asyncio.Task[None]]":
    """An agent whose client `zoe` follows a script, on the clients' thread."""

    async def build(context: AgentContext) -> Scripted:
        return Scripted(context.client, hold)

    with running(hosted, settings_of_zoe(hosted, state), build) as agents:
        yield agents


def settings_of_zoe(hosted: Hosted, state: Path) -> AgentSettings:
    """The settings of an agent that hosts the client `zoe`."""
    token = hosted.operator.mint(["zoe"]).tokens[0]
    return AgentSettings(aggregator=hosted.url, state=state, join_token=token)


@contextmanager
def running(
    hosted: Hosted, settings: AgentSettings, build: Build
) -> "Iterator[asyncio.Task[None]]":
    """An agent on the clients' thread."""

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(run_agents(settings, build))

    async def stop() -> None:
        agents.cancel()
        await asyncio.gather(agents, return_exceptions=True)

    agents = hosted.soon(start())
    try:
        yield agents
    finally:
        hosted.soon(stop())


def test_agent_that_missed_the_end_of_a_deleted_run_joins_the_next_run(
    host: Host, tmp_path: Path
) -> None:
    hosted, held = host(experiment(1, rounds=1, room=0)), True
    first, operator = hosted.run, hosted.operator
    second = operator.run(operator.submit(experiment(1, rounds=1, room=0)).run)

    def hold(ticket: Ticket) -> bool:
        return held and ticket.kind == "evaluate"

    with agent(hosted, tmp_path / "state", hold):
        hosted.wait("evaluating")
        hosted.expire()
        until(lambda: second.info().state == "running")
        first.delete()
        held = False
        hosted.run = second
        hosted.wait()
    assert hosted.record(0).participants == ["zoe"]


def test_agent_exits_when_barred_during_training(host: Host, tmp_path: Path) -> None:
    hosted, held = host(experiment(1, rounds=2, room=0)), True
    with agent(hosted, tmp_path / "state", lambda _: held) as agents:
        hosted.wait("collecting")
        hosted.operator.decide_everywhere("zoe", "evict", "stolen")
        held = False
        until(agents.done)


def test_reinstated_client_continues_with_its_spent_privacy_budget(
    host: Host, tmp_path: Path
) -> None:
    private = {"epochs": 1, "privacy": {}}
    hosted, hold = host(experiment(2, rounds=2, room=0, training=private)), Hold(0)
    settings = settings_of_zoe(hosted, tmp_path / "state")
    hosted.scripted(["ada"], hold=hold)
    with running(hosted, settings, build_honest_client(settings)) as agents:
        hosted.received("zoe")
        hosted.operator.decide_everywhere("zoe", "evict", "suspected")
        until(agents.done)
    hosted.operator.decide_everywhere("zoe", "reinstate", "cleared")
    hosted.run.decide("zoe", "reinstate", "cleared")
    with running(hosted, settings, build_honest_client(settings)):
        hold.on = False
        hosted.wait()
    log = ActivityLog(tmp_path / "state/client-0")
    spent = [entry["epsilon"] for entry in log.entries() if entry["what"] == "trained"]
    assert len(spent) == 2
    assert 0 < spent[0] < spent[1]


@pytest.mark.parametrize("stays", [False, True])
def test_process_with_only_barred_clients_exits_unless_configured_to_stay(
    host: Host, tmp_path: Path, stays: bool
) -> None:
    hosted, processes = host(experiment(3)), ForkedProcesses(tmp_path / "logs")
    tokens, log = tmp_path / "tokens", tmp_path / "logs/agent.log"
    tokens.write_text("\n".join(hosted.operator.mint(["yves", "zoe"]).tokens))
    processes.python(
        "agent",
        "rampart_fl.services.client_agent",
        RAMPART_AGGREGATOR=hosted.url,
        RAMPART_CLIENTS="2",
        RAMPART_STATE=str(tmp_path / "state"),
        RAMPART_JOIN_TOKENS=str(tokens),
        RAMPART_STAY_WHEN_BARRED=str(stays),
    )
    try:
        until(lambda: len(hosted.operator.clients()) == 2)
        hosted.operator.decide_everywhere("yves", "evict", "stolen")
        until(lambda: log.read_text().count('"barred"') == 1)
        assert "SIGTERM" not in log.read_text()
        hosted.operator.decide_everywhere("zoe", "evict", "stolen")
        if stays:
            until(lambda: "waits for SIGTERM" in log.read_text())
            assert processes["agent"].poll() is None
            processes["agent"].terminate()
        assert processes["agent"].wait(PATIENCE) == 0
        assert log.read_text().count("waits for SIGTERM") == stays
    finally:
        processes.stop_all()
