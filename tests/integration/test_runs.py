"""Several runs on one federation: each gets the same result as alone, and shares no state."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import chaos
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.console.connection.operator import OperatorRefused
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.estimate import estimate
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Ticket
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, experiment, until
from tests.integration.in_process_federation import host as hosting

NAMES = ["ada", "bob", "cleo"]
Host = Callable[..., Hosted]
SMALL = """
name = "queued"
rounds = 4
seed = {seed}
[data]
dataset = "digits"
clients = 4
[model]
name = "logistic"
[training]
epochs = 1
[server]
customizer = {{ name = "fedcap", alpha = 10, phi = 0.1 }}
[phases.collecting]
count = {{ min = 1.0 }}
"""


def outcome(hosted: Hosted) -> list[dict[str, Any]]:
    """The records of a run, without times."""
    return [chaos.comparable(record) for record in hosted.run.rounds()]


def play(hosted: Hosted, run: str, disturb: Callable[[Hold], None] | None = None) -> None:
    """Plays a run with scripted clients to its end; `disturb` acts while they hold round 1 back."""
    hosted.run = hosted.operator.run(run)
    hosted.run.await_start()
    hold = Hold(1 if disturb is not None else -1)
    hosted.scripted(NAMES, hold=hold)
    if disturb is not None:
        hosted.wait("collecting", 1)
        disturb(hold)
        hold.on = False
    hosted.wait()


def three() -> list[Experiment]:
    """Three experiments; the first and the last are equal, so that they give the same models."""
    return [experiment(seed=seed, rounds=3, server=FEDCAP) for seed in (1, 2, 1)]


def test_each_of_three_runs_gets_the_same_result_as_alone(
    host: Host, tmp_path: Path, redis_url: str
) -> None:
    alone = []
    for number, definition in enumerate(three()[:2]):
        folder = tmp_path / f"alone-{number}"
        folder.mkdir()
        with hosting(definition, folder, redis_url) as one:
            play(one, one.run.id)
            alone.append(outcome(one))
    hosted = host(three()[0])
    names = [hosted.run.id, *(hosted.operator.submit(definition).run for definition in three()[1:])]
    waiting = hosted.operator.run(names[2]).info().waits_for
    assert waiting == f"the end of {names[0]} and 1 more run"
    for run in names:
        play(hosted, run, lambda _: hosted.restart())
        assert hosted.run.info().state == "finished"
    results = []
    for run in names:
        hosted.run = hosted.operator.run(run)
        results.append(outcome(hosted))
    assert results == [alone[0], alone[1], alone[0]]


def test_no_response_contains_the_secret_seed_of_a_run(host: Host) -> None:
    hosted = host(experiment(rounds=2), predictable_draws=False)
    play(hosted, hosted.run.id)
    state = hosted.of_run(lambda run: run.state.read())
    assert state.server_seed != state.experiment.seed
    base = f"{hosted.url}/v1/runs/{hosted.run.id}"
    headers = {"Authorization": f"Bearer {hosted.settings.operator_token.get_secret_value()}"}
    pages = ["", "/experiment", "/rounds/current", "/rounds", "/rounds/1", "/figures", "/verdicts"]
    pages += ["/members", "/proposals", "/evaluations"]
    for page in pages:
        response = httpx.get(base + page, headers=headers)
        assert response.status_code == 200, page
        assert str(state.server_seed) not in response.text
    seen = hosted.of_run(lambda run: run.state.redis.client.hgetall(run.keys.state))
    assert seen["server_seed"] == str(state.server_seed) and str(state.server_seed) not in repr(
        state
    )


def test_deleting_a_run_frees_only_its_own_blobs_even_if_others_are_equal(
    host: Host, tmp_path: Path
) -> None:
    hosted = host(three()[0])
    first, second = hosted.run.id, hosted.operator.submit(three()[2]).run
    play(hosted, first)
    play(hosted, second)
    kept = outcome(hosted)
    digest = kept[-1]["models"]["global"]
    folder = Path(hosted.settings.blobs) / hosted.settings.namespace
    before = {path.name: path.read_bytes() for path in (folder / second).glob("??/*")}
    shared = {path.name for path in (folder / first).glob("??/*")} & before.keys()
    assert digest in shared
    hosted.operator.run(first).delete()
    until(lambda: not (folder / first).exists())
    assert {path.name: path.read_bytes() for path in (folder / second).glob("??/*")} == before
    assert outcome(hosted) == kept
    left = hosted.stores(lambda stores: stores.redis.keys(stores.keys.of_run(first).prefix + "*"))
    assert left == []


def test_a_run_that_exceeds_the_disk_quota_waits_until_others_are_deleted(host: Host) -> None:
    first, second, third = three()
    hosted = host(first, disk_quota=estimate(first).disk_bytes)
    operator, played = hosted.operator, hosted.run
    with pytest.raises(OperatorRefused, match="RAMPART_DISK_QUOTA is"):
        operator.submit(experiment(20, rounds=3, server=FEDCAP))
    play(hosted, played.id)
    impatient = operator.run(operator.submit(third, wait_seconds=2).run)
    waiting = operator.run(operator.submit(second).run)
    until(lambda: impatient.info().state == "cancelled")
    reason = impatient.info().reason
    assert reason.startswith("the run waited 2 seconds for disk: the run needs an estimated")
    until(lambda: waiting.info().waits_for.startswith("disk: the run needs an estimated"))
    played.delete()
    play(hosted, waiting.id)
    assert waiting.info().state == "finished"


def test_runs_share_no_tickets_evictions_or_models(host: Host) -> None:
    """Each run has its own rows, tickets, evictions, models and receipts.

    A client's token is valid in both runs, but each run accepts only what its own ticket asks for.
    """
    hosted = host(three()[0])
    first, second = hosted.run.id, hosted.operator.submit(three()[1]).run

    def refusal(run: str) -> str:
        """Why a run refuses an upload of ada, who has a ticket for round 1 of the other run."""
        headers = {"Authorization": f"Bearer {hosted.join('ada').token}"}
        headers["Content-Type"] = wire.MEDIA_TYPE
        url = f"{hosted.url}/v1/runs/{run}/rounds/1/update"
        return str(httpx.put(url, content=b"an update", headers=headers).json()["type"])

    def evict(hold: Hold) -> None:
        hosted.run.decide("cleo", "evict", "odd")
        assert refusal(second) == "urn:rampart:not-started"

    def look_back(hold: Hold) -> None:
        assert refusal(first) == "urn:rampart:conflict", "it has ada's update of that round"

    play(hosted, first, evict)
    digest = hosted.record(0).models["global"]
    assert hosted.run.status().evicted == ["cleo"]

    play(hosted, second, look_back)
    assert hosted.run.status().evicted == []
    assert hosted.record(0).participants == NAMES, "an eviction belongs to its run"
    assert hosted.record(0).probed == [], "everybody begins anew"
    bearer = {"Authorization": f"Bearer {hosted.join('ada').token}"}
    for run, model in ((second, digest), (first, hosted.record(2).models["global"])):
        url = f"{hosted.url}/v1/runs/{run}/models/{model}"
        assert httpx.get(url, headers=bearer).status_code in (403, 404)
        owner = {"Authorization": f"Bearer {hosted.settings.operator_token.get_secret_value()}"}
        assert httpx.get(url, headers=owner).status_code == 404
    done = httpx.get(f"{hosted.url}/v1/ticket?run={first}", headers=bearer)
    assert Ticket.model_validate_json(done.content).kind == "done"


def test_a_client_that_is_barred_takes_part_in_no_later_run(host: Host) -> None:
    definition = experiment(
        rounds=2,
        server={
            **FEDCAP,
            "detectors": [{"name": "norm_bound", "threshold": 5}],
            "eviction": {"scope": "federation"},
        },
    )
    hosted = host(definition)
    second = hosted.operator.submit(experiment(clients=2, rounds=1)).run
    hosted.scripted(NAMES[:2])
    hosted.scripted(["cleo"], scale=100.0)
    hosted.wait()
    assert hosted.run.status().evicted == ["cleo"]
    (barred,) = [one for one in hosted.operator.clients() if one.barred is not None]
    assert barred.client_id == "cleo"
    hosted.run = hosted.operator.run(second)
    hosted.run.await_start()
    hosted.scripted(NAMES)
    hosted.wait()
    assert hosted.last_ticket("cleo").run == ""
    assert hosted.record(0).participants == NAMES[:2]


def test_detectors_of_many_runs_bar_fewer_than_half_of_the_federation(host: Host) -> None:
    """Each run bars at most half of its own members: 3 of 7, then 1 of 4, then 1 of 3."""
    server = {
        **FEDCAP,
        "detectors": [{"name": "norm_bound", "threshold": 5}],
        "eviction": {"scope": "federation"},
    }
    names = [f"client-{k}" for k in range(7)]
    hosted = host(experiment(7, rounds=2, server=server))
    second = hosted.operator.submit(experiment(clients=4, rounds=2, server=server)).run
    hosted.scripted(names[:3])
    hosted.scripted(names[3:], scale=100.0)
    hosted.wait()
    barred = [one.client_id for one in hosted.operator.clients() if one.barred]
    assert barred == hosted.run.status().evicted
    assert len(barred) == 3
    hosted.run = hosted.operator.run(second)
    hosted.run.await_start()
    hosted.scripted(names[:3])
    (loud,) = set(names[3:]) - set(barred)
    hosted.scripted([loud], scale=100.0)
    hosted.wait()
    assert hosted.run.status().evicted == [loud]
    assert [one.client_id for one in hosted.operator.clients() if one.barred] == barred


@pytest.mark.timeout(400)
def test_agents_take_part_in_every_run_whichever_process_is_killed(tmp_path: Path) -> None:
    """A different process is killed in each run, and the aggregator after each run.

    The first and the third run have the same experiment, and get the same models.
    """
    experiments = [Experiment.parse(SMALL.format(seed=seed)) for seed in (1, 2, 1)]
    settings, disturbed = {"RAMPART_THREADS": "1"}, chaos.Run([], [], {}, 0.0)
    damages = (
        chaos.kill_aggregator,
        chaos.kill_redis,
        chaos.kill_clients_between_training_and_upload,
    )
    with LocalFederation(
        experiments[0], tmp_path, settings=settings, processes=ForkedProcesses
    ) as federation:
        operator = federation.operator
        later = [operator.submit(definition).run for definition in experiments[1:]]
        runs = [federation.run, *map(operator.run, later)]
        federation.start_clients()
        for run, damage in zip(runs, damages, strict=True):
            while run.info().state == "queued" or run.status().round < 1:
                federation.processes.check("redis", "aggregator")
                time.sleep(0.1)
            damage(federation, disturbed)
            while run.status().phase != "done":
                federation.processes.check("redis", "aggregator", "clients-0")
                time.sleep(0.1)
            chaos.kill_aggregator(federation, disturbed)
        assert disturbed.kills[::2] == ["aggregator", "redis", "clients-0"]
        results = []
        for run in runs:
            assert run.evaluations().keys() == set(experiments[0].client_names)
            results.append([chaos.comparable(record) for record in run.rounds()])
        assert [len(records) for records in results] == [4, 4, 4]
        assert chaos.difference({"records": results[0]}, {"records": results[2]}) is None
        assert results[0] != results[1]
        folders = tmp_path.glob("clients/clients-0/client-0/runs/*")
        assert [folder.name for folder in folders] == [runs[-1].id], (
            "former runs left nothing to keep"
        )
        kept = list(tmp_path.glob("clients/clients-0/client-*/runs/*/*.kept"))
        until(lambda: not [path for path in kept if path.exists()])


def held(hosted: Hosted) -> tuple[set[str], dict[str, bytes]]:
    """The keys in Redis that do not expire, and all blobs."""

    async def lasting(stores: Stores) -> set[str]:
        client = stores.redis.client
        values = [key async for key in client.scan_iter(match=f"{stores.keys.prefix}*")]
        return {key for key in values if await client.ttl(key) == -1}

    folder = Path(hosted.settings.blobs) / hosted.settings.namespace
    files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return hosted.stores(lasting), {name: path.read_bytes() for name, path in files.items()}


def test_a_deleted_run_leaves_redis_and_blobs_as_they_were(host: Host) -> None:
    """One run stays, while three others are played and deleted."""
    hosted = host(three()[0])
    play(hosted, hosted.run.id)
    # The api records the time of a client's last request with some delay.
    until(lambda: hosted.stores(lambda stores: stores.clients.silences()).keys() == {*NAMES})
    before = held(hosted)
    assert before[1], "the run that stays has blobs"
    for definition in three():
        run = hosted.operator.submit(definition).run
        play(hosted, run)
        assert held(hosted)[0] - before[0], "the run has keys"
        hosted.run.delete()
        until(lambda: not hosted.stores(lambda stores: stores.runs.deleted_runs()))
        keys, blobs = held(hosted)
        assert (keys ^ before[0], blobs.keys() ^ before[1].keys()) == (set(), set())
        assert blobs == before[1]
