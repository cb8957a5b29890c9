"""The buffered policy over HTTP: no barrier, K-th upload refreshes, stale updates weigh less."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.shared.experiment import Experiment
from tests.integration.in_process_federation import (
    FEDCAP,
    Hold,
    Hosted,
    Scripted,
    experiment,
    until,
)
from tests.integration.replay import check_replay

NAMES = ["ada", "bob", "cleo", "dan"]
Host = Callable[..., Hosted]


def buffered(clients: int, rounds: int, buffer: float, **tables: Any) -> Experiment:
    """A buffered experiment with FedCAP's customized models."""
    tables = {"server": FEDCAP, "seed": 2, **tables}
    return experiment(clients, rounds, policy="buffered", buffer=buffer, **tables)


def test_every_kth_update_refreshes_the_model_and_a_replay_agrees(
    host: Host, tmp_path: Path
) -> None:
    server = {**FEDCAP, "detectors": [{"name": "norm_bound", "threshold": 5}]}
    definition = buffered(5, 8, 2, server=server)
    hosted = host(definition)
    clients = hosted.scripted(NAMES)
    clients["eve"] = Scripted("eve", scale=10.0)
    hosted.take_part("eve", clients["eve"])
    hosted.wait()
    records = hosted.run.rounds()
    assert [record.status for record in records] == ["published"] * 8
    assert hosted.run.status().evicted == ["eve"]
    again = check_replay(hosted, hosted.of_run, definition, clients, tmp_path)
    assert len(again.counted) == 8 * 2


def test_slow_client_blocks_nobody_and_its_stale_update_weighs_less(
    host: Host, tmp_path: Path
) -> None:
    definition = buffered(4, 30, 2)
    hosted, hold = host(definition), Hold(0)
    clients = hosted.scripted(NAMES[:3]) | hosted.scripted(["dan"], hold=hold)
    hosted.wait("collecting", 3)
    assert not any("dan" in record.participants for record in hosted.run.rounds())
    hold.on = False
    hosted.wait()
    records = hosted.run.rounds()
    first = next(record for record in records if "dan" in record.participants)
    assert first.round >= 3
    # It trained for round 0.
    assert first.staleness["dan"] == first.round
    for record in records:
        worth = {c: 10 / (1 + staleness) ** 0.5 for c, staleness in record.staleness.items()}
        total = sum(worth.values())
        expected = {client: one / total for client, one in worth.items()}
        assert record.weights == pytest.approx(expected, abs=1e-6)
    check_replay(hosted, hosted.of_run, definition, clients, tmp_path)


def test_unscreened_updates_reach_no_customized_model(host: Host, tmp_path: Path) -> None:
    server = {**FEDCAP, "detectors": [{"name": "norm_bound", "threshold": 5}]}
    definition = buffered(4, 4, 3, server=server)
    hosted, hold, later = host(definition), Hold(1), Hold(1)
    clients = hosted.scripted(NAMES[:2], hold=hold)
    clients["cleo"] = Scripted("cleo", hold=later)
    hosted.take_part("cleo", clients["cleo"])
    clients["eve"] = Scripted("eve", scale=0.01, hold=Hold(0))
    hosted.take_part("eve", clients["eve"])
    hosted.wait("collecting", 1)
    # Eve's update for round 0 arrives in round 1, and is far too large.
    clients["eve"].scale = 10.0
    clients["eve"].hold = lambda ticket: False
    until(lambda: hosted.of_run(lambda run: run.uploads.receipt(0, "update", "eve")))
    # When the newcomer pulls again, it gets the model that the last refresh made for it.
    newcomer = hosted.scripted(["fay"])["fay"]
    clients["fay"] = newcomer
    while len(newcomer.tickets) < 2:
        hosted.wait("collecting", 1)
    assert [ticket.kind for ticket in newcomer.tickets] == ["probe", "train"]
    hold.on = later.on = False
    hosted.wait()
    record = hosted.record(1)
    assert [v.client for v in record.verdicts if v.decision == "evicted"] == ["eve"]
    for record in hosted.run.rounds():
        assert "eve" not in record.customized
        assert not any("eve" in shares for shares in record.mixing.values())
    check_replay(hosted, hosted.of_run, definition, clients, tmp_path)


def test_a_pause_loses_no_request(host: Host, tmp_path: Path) -> None:
    definition = buffered(4, 8, 2)
    hosted, hold, later = host(definition), Hold(0), Hold(3)
    clients = hosted.scripted(NAMES[:3], hold=later) | hosted.scripted(["dan"], hold=hold)
    hosted.wait("collecting", 3)
    hosted.run.steer("pause")
    later.on = False
    round_ = hosted.wait("published").round
    # During the pause, all other clients ask for a ticket, and an update arrives.
    until(lambda: len(hosted.of_run(pulls)) >= 3)
    hold.on = False
    until(lambda: hosted.of_run(lambda run: run.uploads.receipt(0, "update", "dan")))
    until(lambda: len(hosted.of_run(pulls)) >= 4)
    assert hosted.run.status().round == round_
    hosted.run.steer("resume")
    hosted.wait()
    assert "dan" in hosted.record(round_ + 1).participants
    check_replay(hosted, hosted.of_run, definition, clients, tmp_path)


async def pulls(run: RunStores) -> dict[str, str]:
    """The clients that asked for a ticket and have none yet."""
    values: dict[str, str] = await run.state.redis.client.hgetall(run.keys.pulls)
    return values
