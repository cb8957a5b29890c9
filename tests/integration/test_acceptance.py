"""An agent with an owner's policy declines one run, takes part in the next, and logs both."""

import asyncio
from pathlib import Path

import numpy as np

from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import build_honest_client
from rampart_fl.shared.agent.host import host as run_agents
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.protocol.runs import OVER
from tests.integration.in_process_federation import Hold, Hosted, experiment, host, until

POLICY = """
most_epochs = 1
[data]
digits = "own.npz"
[privacy]
least_noise = 0.5
"""
OWN = 40
"""Training samples of the client's own, which no slot has."""


def write_policy(folder: Path) -> Path:
    """Writes the owner's policy, and the file of samples that it names."""
    held = client_data(Data(dataset="digits", clients=20), slot=3, seed=9)
    train = {"x_train": held.x_train[:OWN].numpy(), "y_train": held.y_train[:OWN].numpy()}
    np.savez(folder / "own.npz", **train, x_test=held.x_test.numpy(), y_test=held.y_test.numpy())
    (folder / "accept.toml").write_text(POLICY)
    return folder / "accept.toml"


def begin(hosted: Hosted, settings: AgentSettings) -> "asyncio.Task[None]":
    """Starts the agents on the clients' thread."""

    async def start() -> "asyncio.Task[None]":
        return asyncio.create_task(run_agents(settings, build_honest_client(settings)))

    return hosted.soon(start())


def end(hosted: Hosted, agents: "asyncio.Task[None]") -> None:
    """Stops the agents."""

    async def stop() -> None:
        agents.cancel()
        await asyncio.gather(agents, return_exceptions=True)

    hosted.soon(stop())


def online(hosted: Hosted, client: str) -> bool:
    """Whether operators see this client as online."""
    return {one.client_id: one.online for one in hosted.operator.clients()}[client]


def test_agent_follows_the_owners_policy_and_logs_each_decision(
    tmp_path: Path, redis_url: str
) -> None:
    refused = experiment(1, rounds=1, room=0, training={"epochs": 2})
    agreed = experiment(1, rounds=2, room=0, training={"epochs": 1, "privacy": {}}, name="agreed")
    with host(refused, tmp_path, redis_url) as hosted:
        settings = AgentSettings(
            aggregator=hosted.url,
            state=tmp_path / "state",
            join_token=hosted.operator.mint(["zoe"]).tokens[0],
            accept=write_policy(tmp_path),
        )
        agents = begin(hosted, settings)
        hosted.run = hosted.operator.run("scripted-1")
        until(lambda: [one.accept for one in hosted.run.members()] == [False])
        (member,) = hosted.run.members()
        assert (member.client_id, member.slot) == ("zoe", None)
        assert member.reason == (
            "training.epochs is 2: this client trains at most 1; "
            "training.privacy is missing, but this client requires it"
        )
        hosted.run.steer("stop")
        hosted.run = hosted.operator.run(hosted.operator.submit(agreed).run)
        until(lambda: hosted.run.info().state in OVER)
        assert hosted.run.info().state == "finished"
        records = hosted.run.rounds()
        end(hosted, agents)

    log = list(ActivityLog(tmp_path / "state/client-0").entries())
    decisions = [(entry["what"], entry["run"], entry.get("round")) for entry in log]
    assert decisions == [
        ("declined", "scripted-1", None),
        ("accepted", "agreed-2", None),
        *((what, "agreed-2", round_) for round_ in range(2) for what in ("trained", "sending")),
    ]
    assert log[0]["reason"] == member.reason
    assert log[1]["data"] == str(tmp_path / "own.npz")
    trained, sent = log[2::2], log[3::2]
    assert [entry["samples"] for entry in trained] == [OWN, OWN]
    assert 0 < trained[0]["epsilon"] < trained[1]["epsilon"]
    assert [entry["bytes"] for entry in sent] == [record.bytes_up["zoe"] for record in records]
    assert len({entry["digest"] for entry in sent}) == 2


def test_stricter_policy_withdraws_the_client_from_an_accepted_run(
    tmp_path: Path, redis_url: str
) -> None:
    definition = experiment(2, rounds=3, room=0, training={"epochs": 2})
    # The client that withdraws counts as offline after three seconds.
    with host(definition, tmp_path, redis_url, offline_after=3.0, poll=1.0) as hosted:
        first, hold = hosted.run.id, Hold(0)
        later = hosted.operator.submit(experiment(2, rounds=1, room=0, training={"epochs": 1})).run
        loose = AgentSettings(
            aggregator=hosted.url,
            state=tmp_path / "state",
            join_token=hosted.operator.mint(["zoe"]).tokens[0],
        )
        agents = begin(hosted, loose)
        hosted.scripted(["ada"], hold=hold)
        hosted.received("zoe")
        end(hosted, agents)
        hold.round = 1
        (tmp_path / "accept.toml").write_text("most_epochs = 1")
        agents = begin(hosted, loose.model_copy(update={"accept": tmp_path / "accept.toml"}))
        log = ActivityLog(tmp_path / "state/client-0")
        until(lambda: [entry for entry in log.entries() if entry["what"] == "declined"])
        until(lambda: not online(hosted, "zoe"))
        hosted.run.steer("stop")
        hold.on = False
        hosted.run = hosted.operator.run(later)
        hosted.run.await_start()
        hosted.scripted(["ada"])
        hosted.wait()
        assert hosted.record(0).participants == ["ada", "zoe"]
        end(hosted, agents)
    decisions = [(entry["what"], entry["run"]) for entry in log.entries()]
    assert decisions == [
        *((what, first) for what in ("accepted", "trained", "sending", "declined")),
        *((what, later) for what in ("accepted", "trained", "sending")),
    ]
