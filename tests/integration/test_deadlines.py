"""When a round closes: k of n with a deadline, too few updates, shortest time, most updates."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport, Ticket
from rampart_fl.shared.protocol.traffic import claims
from tests.integration.in_process_federation import (
    FEDCAP,
    Hold,
    Hosted,
    Scripted,
    collecting,
    experiment,
    spec_of,
    until,
)

NAMES = ["ada", "bob", "cleo", "dan", "eve"]
Host = Callable[..., Hosted]


def test_round_closes_at_the_deadline_without_a_straggler(host: Host) -> None:
    hosted, hold = host(experiment(3, server=FEDCAP, phases=collecting(least=2))), Hold(0)
    hosted.scripted(NAMES[:2])
    straggler = hosted.scripted(["cleo"], hold=hold)["cleo"]
    hosted.received("ada", "bob")
    assert hosted.run.status().phase == "collecting"
    hosted.expire()
    hosted.wait("collecting", 1)
    record = hosted.record(0)
    assert (record.status, record.participants) == ("published", ["ada", "bob"])
    assert record.missing == ["cleo"]
    hold.on = False
    hosted.wait()
    # Its update came too late: the pool does not know it, and the next round waits for it.
    assert straggler.requests() == [(0, "train"), (1, "probe"), (1, "train"), (1, "evaluate")]
    assert hosted.record(1).participants == NAMES[:3]
    assert (hosted.record(0).missing, hosted.record(0).late) == (["cleo"], ["cleo"])
    assert hosted.run.verdicts(0, 1, "cleo").decisions == ["la"]


def test_a_client_that_never_uploads_is_absent_and_not_late(host: Host) -> None:
    hosted = host(experiment(3, rounds=1, phases=collecting(least=2)))
    hosted.scripted(NAMES[:2])
    hosted.scripted(["cleo"], hold=Hold(0))
    hosted.received("ada", "bob")
    hosted.expire()
    hosted.wait("evaluating")
    assert (hosted.record(0).missing, hosted.record(0).late) == (["cleo"], [])
    assert hosted.run.verdicts(0, 0, "cleo").decisions == ["-"]


class Diverging(Scripted):
    """Reports for its probes that training diverged."""

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        upload = await super().work(ticket, model)
        if ticket.kind != "probe":
            return upload
        spec = spec_of(model)
        report = ClientReport(samples=10, diverged=True)
        return wire.encode(spec, np.zeros(spec.dim, np.float32), claims(report))


def test_client_whose_probe_diverged_gets_the_global_model(host: Host) -> None:
    hosted = host(experiment(3, server=FEDCAP, phases=collecting(least=2)))
    hosted.scripted(NAMES[:2])
    hold = Hold(0)
    straggler = Diverging("cleo", hold)
    hosted.join("cleo")
    hosted.take_part("cleo", straggler)
    hosted.received("ada", "bob")
    hosted.expire()
    hosted.wait("collecting", 1)
    hold.on = False
    hosted.wait()
    assert straggler.requests() == [(0, "train"), (1, "probe"), (1, "train"), (1, "evaluate")]
    assert straggler.tickets[2].models["model"] == hosted.record(0).models["global"]
    assert hosted.record(1).probed == ["cleo"]


def test_too_few_updates_fail_the_round_and_the_next_reuses_its_models(host: Host) -> None:
    hosted, hold = host(experiment(3, rounds=3, server=FEDCAP, phases=collecting(0.6))), Hold(1)
    clients = hosted.scripted(["ada"]) | hosted.scripted(["bob", "cleo"], hold=hold)
    hosted.wait("collecting", 1)
    hosted.received("ada")
    models = hosted.run.status().models
    hosted.expire()
    hosted.wait("collecting", 2)
    record = hosted.record(1)
    assert (record.status, record.reason) == ("failed", "1 of 3 updates arrived, but 2 are needed")
    assert (record.participants, record.missing) == (["ada"], ["bob", "cleo"])
    assert record.verdicts == []
    assert hosted.run.status().models == models
    hold.on = False
    hosted.wait()
    for client in clients.values():
        assert client.requests() == [(0, "train"), (1, "train"), (2, "train"), (2, "evaluate")]
        assert client.tickets[2].models == client.tickets[1].models
    assert hosted.record(2).participants == NAMES[:3]
    assert hosted.record(2).models["reference"] == models["global"]


def test_round_without_updates_fails_at_its_deadline(host: Host) -> None:
    hosted, hold = host(experiment(2, phases=collecting(max=0.3))), Hold(0)
    hosted.scripted(NAMES[:2], hold=hold)
    hosted.wait("collecting", 1)
    record = hosted.record(0)
    assert (record.status, record.reason) == ("failed", "0 of 2 updates arrived, but 2 are needed")
    assert record.closed_at - record.opened_at >= 0.3
    hold.on = False
    hosted.wait()


def test_a_round_lasts_at_least_its_minimum(host: Host) -> None:
    hosted = host(experiment(2, phases=collecting(min=0.4)))
    hosted.scripted(NAMES[:2])
    hosted.wait()
    for record in hosted.run.rounds():
        assert record.closed_at - record.opened_at >= 0.4
        assert record.participants == NAMES[:2]


def test_round_closes_at_its_maximum_number_of_updates(host: Host) -> None:
    hosted, hold = host(experiment(3, phases=collecting(2, most=2))), Hold(0)
    hosted.scripted(NAMES[:2])
    hosted.scripted(["cleo"], hold=hold)
    hosted.wait("collecting", 1)
    assert hosted.record(0).participants == NAMES[:2]
    assert hosted.record(0).missing == ["cleo"]
    hold.on = False
    hosted.wait()


@pytest.mark.parametrize("rule", ["krum", ["nnm", "krum"]])
def test_rule_with_too_few_rows_fails_only_that_round(host: Host, rule: Any) -> None:
    server = {**FEDCAP, "rule": rule, "f": 1}
    hosted = host(experiment(5, rounds=3, server=server, phases=collecting(least=2)))
    hold = Hold(1)
    clients = hosted.scripted(NAMES[:2]) | hosted.scripted(NAMES[2:], hold=hold)
    hosted.wait("collecting", 1)
    newcomer = hosted.scripted(["fay"])["fay"]
    hosted.received("ada", "bob")
    models = hosted.run.status().models
    hosted.expire()
    hosted.wait("collecting", 2)
    record = hosted.record(1)
    assert record.status == "failed"
    assert record.reason.endswith("rows: n=2, f=1")
    assert hosted.run.status().models == models
    hold.on = False
    hosted.wait()
    assert hosted.record(2).participants == [*NAMES, "fay"]
    assert all(c.tickets[2].models == c.tickets[1].models for c in clients.values())
    # The newcomer's probe is answered from the pool of round 0.
    assert newcomer.requests() == [(2, "probe"), (2, "train"), (2, "evaluate")]
    assert newcomer.tickets[0].models["model"] == models["reference"]
    assert newcomer.tickets[1].models["model"] not in models.values()


def test_run_starts_at_the_joining_deadline_without_absent_clients(host: Host) -> None:
    phases = {**collecting(least=1), "joining": {"deadline": 60}}
    hosted = host(experiment(3, phases=phases))
    hosted.wait("joining")
    assert hosted.run.status().deadline is not None
    hosted.scripted(NAMES[:2])
    until(lambda: [one.accept for one in hosted.run.members()] == [True, True])
    hosted.expire()
    hosted.wait()
    assert hosted.record(0).participants == NAMES[:2]


def test_run_starts_with_the_first_client_if_nobody_joins_by_the_deadline(host: Host) -> None:
    phases = {**collecting(least=1), "joining": {"deadline": 0.01}}
    hosted = host(experiment(3, rounds=1, phases=phases))
    hosted.wait("joining")
    hosted.scripted(["ada"])
    hosted.wait()
    assert hosted.record(0).participants == ["ada"]
