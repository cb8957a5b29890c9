"""Submitting, listing, steering and deleting runs over HTTP, with a worker in this process."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.run_registry import RunRegistry
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.aggregator.worker.worker import Worker
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.figures.estimate import estimate
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.protocol.runs import RunInfo
from tests.services.aggregator.api.conftest import RUN, Api, slug

pytestmark = pytest.mark.anyio
TABLES: dict[str, Any] = {
    "name": "next",
    "rounds": 5,
    "data": {"dataset": "digits", "clients": 2},
    "model": "logistic",
}


@pytest.fixture
async def working(api: Api, redis_url: str) -> AsyncIterator[Api]:
    """An api process whose federation also has a worker; its first run is `test-1`."""
    namespace = api.live_run.stores.keys.prefix.strip("{}:")
    stores, hub = (
        Stores.connect(redis_url, None, namespace),
        asyncio.create_task(api.runtime.hub.run()),
    )
    blobs: RunBlobs = api.runtime.blobs
    await api.live_run.stores.lease.release("worker", api.live_run.fence)
    blob = blobs.of_run("test-1").put(b"a model")
    snapshot = (await api.live_run.run.state.read()).snapshot
    snapshot = snapshot.model_copy(update={"global_model": blob, "reference": blob})
    await stores.redis.client.hset(
        api.live_run.run.keys.state, "snapshot", snapshot.model_dump_json()
    )
    worker = Worker(api.runtime.settings, stores, blobs, None)
    task = asyncio.create_task(worker.run())
    while not api.runtime.hub.listening:
        await asyncio.sleep(0.001)
    yield replace(api)
    for one in (task, hub):
        one.cancel()
    await asyncio.gather(task, hub, return_exceptions=True)
    await worker.stop()
    await stores.aclose()


async def submit(api: Api, **fields: Any) -> httpx.Response:
    return await api.ask("POST", "/v1/runs", json={"experiment": TABLES, **fields})


async def state(api: Api, run: str, *states: str) -> RunInfo:
    """The run, once it is in one of these states."""
    while True:
        answer = await api.ask("GET", f"/v1/runs/{run}")
        assert answer.status_code == 200, answer.text
        info = RunInfo.model_validate_json(answer.content)
        if info.state in states:
            return info
        await asyncio.sleep(0.01)


async def test_submitted_experiment_is_queued_with_the_reason_for_waiting(working: Api) -> None:
    answer = await submit(working, name="tuesday", wait_seconds=60)
    assert answer.status_code == 201, answer.text
    info = RunInfo.model_validate_json(answer.content)
    assert (info.run, info.state, info.submitted_by) == ("tuesday-2", "queued", "owner")
    assert info.waits_for == "the end of test-1"
    assert info.experiment == Experiment.from_tables(TABLES).digest()
    assert info.wait_until == pytest.approx(info.submitted_at + 60, abs=5)
    third = RunInfo.model_validate_json((await submit(working)).content)
    assert third.waits_for == "the end of test-1 and 1 more run"
    listed = (await working.ask("GET", "/v1/runs")).json()
    assert [one["run"] for one in listed] == ["test-1", "tuesday-2", "next-3"]


async def test_runs_are_paged_backwards_from_the_newest(working: Api) -> None:
    for _ in range(4):
        await submit(working)
    names = ["test-1", *(f"next-{number}" for number in range(2, 6))]

    async def listed(**query: Any) -> list[str]:
        answer = await working.ask("GET", "/v1/runs", params=query)
        assert answer.status_code == 200, answer.text
        return [one["run"] for one in answer.json()]

    assert await listed() == names
    assert await listed(limit=2) == names[3:]
    assert await listed(limit=2, before="next-4") == names[1:3]
    assert await listed(limit=2, before="next-2") == names[:1]
    assert await listed(before="test-1") == []
    assert (await working.ask("DELETE", "/v1/runs/next-3")).status_code == 204
    assert await listed(limit=2, before="next-3") == names[:2], "a deleted run still has a place"
    assert await listed(limit=2, before="3") == names[:2]
    for unknown in ("nope-2", "next-9", "9", "0"):
        answer = await working.ask("GET", "/v1/runs", params={"before": unknown})
        assert (answer.status_code, slug(answer)) == (404, "run-not-found")
        assert answer.json()["detail"] == f"there is no run {unknown}"
    for query in ({"limit": 0}, {"limit": 1001}):
        assert (await working.ask("GET", "/v1/runs", params=query)).status_code == 422


async def test_experiment_can_be_submitted_as_toml_text(working: Api) -> None:
    answer = await submit(working, experiment=to_toml(TABLES))
    assert answer.status_code == 201, answer.text
    assert answer.json()["experiment"] == Experiment.from_tables(TABLES).digest()
    deep = "a = " + 1000 * "["
    texts = {"rounds = ": "not a TOML file", "at = 1979-05-27": "at", deep: "not a TOML file"}
    for text, reason in texts.items():
        refused = await submit(working, experiment=text)
        assert (refused.status_code, slug(refused)) == (422, "invalid-experiment")
        assert reason in refused.json()["detail"]


async def test_check_estimates_an_experiment_without_submitting_it(working: Api) -> None:
    answer = await working.ask("POST", "/v1/runs/check", json={"experiment": TABLES})
    assert answer.status_code == 200, answer.text
    expected = estimate(Experiment.from_tables(TABLES))
    assert Estimate.model_validate_json(answer.content) == expected
    wrong = {"experiment": {**TABLES, "model": "lenet9"}}
    refused = await working.ask("POST", "/v1/runs/check", json=wrong)
    assert (refused.status_code, slug(refused)) == (422, "invalid-experiment")
    assert len((await working.ask("GET", "/v1/runs")).json()) == 1


async def test_operators_read_the_whole_experiment_even_of_a_queued_run(working: Api) -> None:
    tables = {**TABLES, "attackers": [{"count": 1, "attack": "sign_flip"}]}
    run = (await submit(working, experiment=tables)).json()["run"]
    shown = (await working.ask("GET", f"/v1/runs/{run}/experiment")).json()
    assert shown == Experiment.from_tables(tables).tables()


async def test_repeated_submission_key_creates_only_one_run(working: Api) -> None:
    first = await submit(working, submission="a key")
    second = await submit(working, submission="a key")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    other = await submit(working, submission="a key", experiment={**TABLES, "rounds": 6})
    assert (other.status_code, slug(other)) == (409, "conflict")
    assert "next-2 was submitted with this key, but with another experiment" in other.text
    assert len((await working.ask("GET", "/v1/runs")).json()) == 2


async def test_run_that_starts_during_the_request_does_not_wait_for_itself(
    working: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker starts the run after the API has begun to read what the run waits for."""
    registry, read = working.runtime.stores.runs, RunRegistry.current

    async def once_it_has_started(runs: RunRegistry) -> str | None:
        while runs is registry and await read(runs) != "next-2":
            await asyncio.sleep(0.001)
        return await read(runs)

    await working.ask("POST", f"{RUN}/stop")
    await state(working, "test-1", "cancelled")
    monkeypatch.setattr(RunRegistry, "current", once_it_has_started)
    body = [(await submit(working)).json(), *(await working.ask("GET", "/v1/runs")).json()[1:]]
    assert [one["waits_for"] for one in body] == ["clients: 0 of 2 have accepted"] * 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rounds": 0}, "rounds"),
        ({"unheard": 1}, "unheard"),
        ({"model": "lenet9"}, "unknown model 'lenet9'"),
        ({"server": {"rule": {"name": "krum"}, "f": 9}}, "krum"),
        ({"data": {"dataset": "nothing"}}, "unknown data set 'nothing'"),
    ],
    ids=["number", "key", "model", "rows", "data"],
)
async def test_invalid_experiments_are_refused_with_a_reason(
    working: Api, changes: dict[str, Any], reason: str
) -> None:
    answer = await submit(working, experiment={**TABLES, **changes})
    assert (answer.status_code, slug(answer)) == (422, "invalid-experiment")
    assert reason in answer.json()["detail"]
    assert len((await working.ask("GET", "/v1/runs")).json()) == 1


async def test_submissions_are_refused_without_a_worker(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rampart_fl.services.aggregator.api.routes.runs.PATIENCE", 0.1)
    answer = await submit(api)
    assert (answer.status_code, slug(answer)) == (503, "unavailable")
    assert await api.live_run.stores.runs.submission_count() == 1


async def test_queued_run_can_be_cancelled_and_deleted(working: Api) -> None:
    run = (await submit(working)).json()["run"]
    for verb in ("pause", "resume"):
        answer = await working.ask("POST", f"/v1/runs/{run}/{verb}")
        assert (answer.status_code, slug(answer)) == (409, "not-started")
    answer = await working.ask("POST", f"/v1/runs/{run}/stop", json={"reason": "a mistake"})
    assert (answer.json()["state"], answer.json()["reason"]) == ("cancelled", "a mistake")
    for path in ("rounds/current", "evaluations"):
        refused = await working.ask("GET", f"/v1/runs/next-2/{path}")
        assert (refused.status_code, slug(refused)) == (409, "not-started")
        detail = "run next-2 was cancelled before it started: a mistake"
        assert refused.json()["detail"] == detail
    for verb in ("pause", "resume", "stop"):
        answer = await working.ask("POST", f"/v1/runs/{run}/{verb}")
        assert answer.status_code == (200 if verb == "stop" else 409)
    assert (await working.ask("DELETE", f"/v1/runs/{run}")).status_code == 204
    answer = await working.ask("GET", f"/v1/runs/{run}")
    assert (answer.status_code, slug(answer)) == (404, "run-not-found")


async def test_next_run_starts_when_the_current_one_is_stopped(working: Api) -> None:
    run = (await submit(working)).json()["run"]
    answer = await working.ask("DELETE", RUN)
    assert (answer.status_code, slug(answer)) == (409, "run-current")
    assert (await working.ask("POST", f"{RUN}/stop")).json()["state"] == "stopping"
    info = await state(working, run, "running")
    assert info.waits_for == "clients: 0 of 2 have accepted"
    answer = await working.ask("POST", f"{RUN}/pause")
    assert (answer.status_code, slug(answer)) == (409, "run-over")
    assert (await working.ask("POST", f"/v1/runs/{run}/pause")).json()["state"] == "paused"
    assert (await working.ask("GET", f"{RUN}/rounds/current")).json()["phase"] == "done"
    assert (await working.ask("GET", f"/v1/runs/{run}/rounds/current")).json()["run"] == run


async def test_deleted_run_is_not_found_immediately_and_its_blobs_are_removed(working: Api) -> None:
    await working.ask("POST", f"{RUN}/stop")
    await state(working, "test-1", "cancelled")
    assert (await working.ask("DELETE", RUN, params={"reason": "old"})).status_code == 204
    for path in ("", "/rounds", "/rounds/current", "/models/global", "/events", "/members"):
        answer = await working.ask("GET", RUN + path)
        assert (answer.status_code, slug(answer)) == (404, "run-not-found"), path
    answer = await working.ask("DELETE", RUN)
    assert (answer.status_code, slug(answer)) == (404, "run-not-found")
    while (working.runtime.blobs.folder / "test-1").exists():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        *((run, run) for run in ("Test-1", "test", "test-x", "test-1-", "test-1:lease")),
        ("x" * 90 + "-1", "x" * 80),
        ("test-1%00", "test-1\0"),
        ("test-1%0A", "test-1\n"),
    ],
)
async def test_mistyped_run_id_is_a_run_that_does_not_exist(api: Api, run: str, shown: str) -> None:
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/rounds/current"),
        ("POST", "/pause"),
    ):
        answer = await api.ask(method, f"/v1/runs/{run}{path}")
        assert (answer.status_code, slug(answer)) == (404, "run-not-found"), path
        assert answer.json()["detail"] == f"there is no run {shown}"
    answer = await api.ask("GET", f"/v1/runs?before={run}")
    assert (answer.status_code, slug(answer)) == (404, "run-not-found")
    answer = await api.ask("GET", f"/v1/runs/{run}", "x" * 43)
    assert (answer.status_code, slug(answer)) == (401, "unauthorized")
    answer = await api.ask("GET", "/v1/runs/..%2F")
    assert (answer.status_code, slug(answer)) == (404, "not-found")


async def test_metrics_count_queued_runs(working: Api) -> None:
    await submit(working)
    text = (await working.ask("GET", "/metrics")).text
    assert "rampart_queued_runs 1.0" in text
