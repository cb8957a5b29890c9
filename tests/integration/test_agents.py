"""Agents between two runs: how they leave one, and how they hear of the next."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import AgentContext
from rampart_fl.shared.agent.host import host as run_agents
from rampart_fl.shared.protocol.messages import Ticket
from tests.integration.hosted import Hosted, Scripted, experiment, until

Host = Callable[..., Hosted]


@contextmanager
def agent(
    hosted: Hosted, state: Path, hold: Callable[[Ticket], bool]
) -> "Iterator[asyncio.Task[None]]":
    """An agent whose client `zoe` follows a script, on the clients' thread."""
    token = hosted.operator.mint(["zoe"]).tokens[0]
    settings = AgentSettings(aggregator=hosted.url, state=state, join_token=token)

    async def build(context: AgentContext) -> Scripted:
        return Scripted(context.client, hold)

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


def test_who_missed_the_end_of_a_deleted_run_takes_part_in_the_next(
    host: Host, tmp_path: Path
) -> None:
    hosted, held = host(experiment(1, rounds=1, room=0)), True
    first = hosted.run
    second = hosted.operator.submit(experiment(1, rounds=1, room=0)).run

    def hold(ticket: Ticket) -> bool:
        return held and ticket.kind == "evaluate"

    with agent(hosted, tmp_path / "state", hold):
        hosted.wait("evaluating")
        hosted.expire()
        until(lambda: hosted.operator.info(second).state == "running")
        hosted.operator.delete(first)
        held = False
        hosted.operator.run = second
        hosted.wait()
    assert hosted.record(0).participants == ["zoe"]


def test_who_is_barred_while_it_works_ends(host: Host, tmp_path: Path) -> None:
    hosted, held = host(experiment(1, rounds=2, room=0)), True
    with agent(hosted, tmp_path / "state", lambda _: held) as agents:
        hosted.wait("collecting")
        hosted.operator.decide_everywhere("zoe", "evict", "stolen")
        held = False
        until(agents.done)
