"""Offers, acceptances, tickets, and what a client may see of runs that are not its own."""

import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.api.routes.members import ANSWERS, check_decided
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.protocol.refusals import RunNotFound
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.services.aggregator.api.conftest import RUN, Api, slug
from tests.services.aggregator.conftest import held

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)
DATA = {"dataset": "digits", "clients": 2}


async def enrol(api: Api, name: str, **labels: str) -> str:
    """The token of a new client."""
    body: dict[str, Any] = {"client_ids": [name], "labels": labels}
    (join,) = (await api.ask("POST", "/v1/join-tokens", json=body)).json()["tokens"]
    token = mint()
    answer = await api.ask("POST", "/v1/clients", join, json={"token_hash": token_hash(token)})
    assert answer.status_code == 201, answer.text
    return token


async def ticket(api: Api, token: str, **params: str) -> Ticket:
    answer = await api.ask("GET", "/v1/ticket", token, params=params)
    assert answer.status_code == 200, answer.text
    return Ticket.model_validate_json(answer.content)


async def answer(api: Api, token: str, run: str = RUN, **body: Any) -> tuple[int, Any]:
    answer = await api.ask("PUT", f"{run}/acceptance", token, json={"accept": True, **body})
    return answer.status_code, answer.json() if answer.status_code == 200 else slug(answer)


async def next_run(api: Api, slots_assigned: bool = False, **tables: Any) -> str:
    """Ends the current run, and starts another; returns its path."""
    experiment = Experiment.from_tables(
        {"name": "next", "data": DATA, "model": "logistic", **tables}
    )
    stores, fence = api.live_run.stores, api.live_run.fence
    info, _ = await stores.runs.submit(experiment, mint(), BY)
    await stores.of_run(await stores.runs.current()).state.end(fence, NOW)
    digest = api.runtime.blobs.of_run(info.run).put(b"the next run's model")
    snapshot = Snapshot(global_model=digest, reference=digest, initial=digest)
    run = stores.of_run(info.run)
    assert await run.state.start(fence, experiment, ModelSpec.of([]), snapshot, NOW) == "founded"
    if slots_assigned:
        await run.members.assign_slots(fence, {}, 0)
    return f"/v1/runs/{info.run}"


async def test_client_is_offered_the_current_run_until_it_answers(api: Api) -> None:
    run = await next_run(api)
    ada, bob = await enrol(api, "ada"), await enrol(api, "bob")
    offered = await ticket(api, ada)
    assert (offered.kind, offered.run, offered.slot) == ("offer", "next-2", None)
    part = await api.ask("GET", f"{run}/experiment", ada)
    assert part.json()["digest"] == offered.experiment
    assert await answer(api, ada, run, slot=1) == (
        200,
        {"run": "next-2", "client_id": "ada", "accept": True, "reason": "", "slot": None},
    )
    assert (await answer(api, bob, run, accept=False, reason="too many epochs"))[0] == 200
    for token in (ada, bob):
        waiting = await ticket(api, token)
        assert (waiting.kind, waiting.run) == ("wait", ""), "no run concerns it before the start"
    members = {m["client_id"]: m for m in (await api.ask("GET", f"{run}/members")).json()}
    assert (members["ada"]["accept"], members["ada"]["slot"]) == (True, None)
    assert (members["bob"]["accept"], members["bob"]["reason"]) == (False, "too many epochs")


async def test_clients_that_accept_after_the_start_join_until_slots_run_out(api: Api) -> None:
    run = await next_run(api, slots_assigned=True)
    ada, bob, cleo = [await enrol(api, name) for name in ("ada", "bob", "cleo")]
    assert (await answer(api, ada, run, slot=1))[1]["slot"] == 1
    assert (await answer(api, bob, run))[1]["slot"] == 0
    assert await answer(api, cleo, run) == (409, "run-full")
    waiting = await ticket(api, ada)
    assert (waiting.kind, waiting.run, waiting.slot) == ("wait", "next-2", 1)
    assert await answer(api, ada, run, accept=False) == (409, "conflict")


async def test_a_run_selects_clients_by_their_labels(api: Api) -> None:
    run = await next_run(api, clients={"select": {"site": ["eu", "us"]}})
    ada, bob = await enrol(api, "ada", site="eu"), await enrol(api, "bob", site="asia")
    assert (await ticket(api, ada)).kind == "offer"
    assert (await ticket(api, bob)).run == ""
    assert await answer(api, bob, run) == (403, "not-a-member")
    refused = await api.ask("GET", f"{run}/experiment", bob)
    assert (refused.status_code, slug(refused)) == (403, "not-a-member")
    body = {"labels": {"site": "us"}, "reason": "it moved"}
    assert (await api.ask("PUT", "/v1/clients/bob/labels", json=body)).json()["labels"] == {
        "site": "us"
    }
    assert (await ticket(api, bob)).kind == "offer"


async def test_member_learns_of_the_end_of_its_run_after_the_next_has_started(api: Api) -> None:
    ada = await enrol(api, "ada")
    assert (await answer(api, ada))[1]["slot"] == 0
    await next_run(api)
    done = await ticket(api, ada, run="test-1")
    assert (done.kind, done.run, set(done.models)) == ("done", "test-1", {"model", "global"})
    assert (await ticket(api, ada)).kind == "offer"
    assert (await ticket(api, ada, run="gone-9")).run == "next-2", "as if it had named none"


async def test_client_may_access_only_runs_of_which_it_is_a_member(api: Api) -> None:
    """Models, updates, evaluations and customized models of another run are refused."""
    ada = await enrol(api, "ada")
    assert (await answer(api, ada))[1]["slot"] == 0
    run = await next_run(api, slots_assigned=True)
    state = await api.live_run.stores.of_run("next-2").state.read()
    header = {"Content-Type": "application/vnd.safetensors"}
    for method, path, options in [
        ("GET", f"{run}/models/global", {}),
        ("GET", f"{run}/models/{state.snapshot.global_model}", {}),
        ("PUT", f"{run}/rounds/0/evaluation", {"json": {"metrics": {}}}),
    ]:
        refused = await api.ask(method, path, ada, **options)
        assert (refused.status_code, slug(refused)) == (403, "not-a-member"), path
    token = {"Authorization": f"Bearer {ada}", **header}
    for method, path in [
        ("PUT", "rounds/0/update"),
        ("PUT", "rounds/0/probe"),
        ("POST", "customize"),
    ]:
        transport = httpx.ASGITransport(api.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            refused = await client.request(
                method, f"{run}/{path}", headers=token, content=b"some bytes"
            )
        assert (refused.status_code, slug(refused)) == (403, "not-a-member"), path
    for path in ("rounds", "rounds/0", "rounds/current", "verdicts", "members", "evaluations"):
        refused = await api.ask("GET", f"{run}/{path}", ada)
        assert (refused.status_code, slug(refused)) == (403, "forbidden"), path
    other = await api.ask("GET", f"{RUN}/models/{state.snapshot.global_model}")
    assert other.status_code == 404, "nor has its own run the other's blobs"


async def test_declined_evicted_and_late_clients_are_offered_the_next_run(api: Api) -> None:
    """In the first run, one client declines, one is evicted, and one comes too late for a slot."""
    run = await next_run(api, data={**DATA, "clients": 1})
    names = ("ada", "bob", "cleo")
    tokens = [await enrol(api, name) for name in names]
    assert (await answer(api, tokens[0], run, accept=False, reason="too long"))[0] == 200
    await api.live_run.stores.of_run("next-2").members.assign_slots(api.live_run.fence, {}, 1)
    assert (await answer(api, tokens[1], run))[1]["slot"] == 0
    assert await answer(api, tokens[2], run) == (409, "run-full")
    evicted = await api.ask("POST", f"{run}/clients/bob/evict", json={"reason": "odd"})
    assert evicted.json()["evicted"] is True

    later = await next_run(api, slots_assigned=True, data={**DATA, "clients": 3})
    for slot, token in enumerate(tokens):
        assert (await ticket(api, token)).kind == "offer"
        assert (await answer(api, token, later, slot=slot))[1]["slot"] == slot
        assert (await ticket(api, token)).run == "next-3"


async def test_a_revoked_token_is_refused_in_every_run(api: Api) -> None:
    ada, bob = await enrol(api, "ada"), await enrol(api, "bob")
    await answer(api, ada)
    await answer(api, bob)
    run = await next_run(api, slots_assigned=True)
    assert (await api.ask("DELETE", "/v1/clients/ada/token?reason=a%20leak")).status_code < 300
    for path in (RUN, run):
        assert await answer(api, ada, path) == (401, "unauthorized")
        refused = await api.ask("GET", f"{path}/models/global", ada)
        assert (refused.status_code, slug(refused)) == (401, "unauthorized")
    assert (await answer(api, bob, run))[0] == 200


async def test_eviction_applies_only_to_its_run(api: Api) -> None:
    ada = await enrol(api, "ada")
    await answer(api, ada)
    evicted = await api.ask("POST", f"{RUN}/clients/ada/evict", json={"reason": "odd"})
    assert (evicted.json()["evicted"], evicted.json()["slot"]) == (True, 0)
    reply = await ticket(api, ada)
    assert (reply.kind, reply.run, reply.reason) == ("evicted", "test-1", "odd")
    run = await next_run(api, slots_assigned=True)
    assert (await ticket(api, ada)).kind == "offer"
    assert (await answer(api, ada, run))[1]["slot"] == 0
    assert (await api.ask("GET", f"{run}/members")).json()[0]["evicted"] is False


async def test_eviction_from_a_run_that_has_ended_is_refused(api: Api) -> None:
    await answer(api, await enrol(api, "ada"))
    await next_run(api)
    refused = await api.ask("POST", f"{RUN}/clients/ada/evict", json={"reason": "odd"})
    assert (refused.status_code, slug(refused)) == (409, "run-over")
    assert "so an eviction would have no effect" in refused.json()["detail"]
    assert (await api.ask("GET", f"{RUN}/members")).json()[0]["evicted"] is False
    assert (await api.ask("POST", "/v1/clients/ada/evict", json={})).json()["barred"] is not None


async def test_proposals_do_not_wait_for_a_decision_after_the_end_of_the_run(api: Api) -> None:
    for name in ("ada", "bob", "cleo"):
        await answer(api, await enrol(api, name))
    await api.live_run.open(0, ["ada", "bob", "cleo"])
    await api.live_run.quarantine(0, ada=held(9), bob=held(9, "proposal"))
    waiting = (await api.ask("GET", f"{RUN}/proposals")).json()
    assert [one["client_id"] for one in waiting] == ["bob"]
    await next_run(api)
    assert (await api.ask("GET", f"{RUN}/proposals")).json() == []
    for client, verb, what in [
        ("ada", "reinstate", "the end of a quarantine"),
        ("bob", "confirm", "a decision on a proposal"),
        ("bob", "dismiss", "a decision on a proposal"),
    ]:
        refused = await api.ask("POST", f"{RUN}/clients/{client}/{verb}", json={"reason": "odd"})
        assert (refused.status_code, slug(refused)) == (409, "run-over")
        text = f"run test-1 is finished, so {what} would have no effect"
        assert refused.json()["detail"] == text
    members = {m["client_id"]: m for m in (await api.ask("GET", f"{RUN}/members")).json()}
    assert members["bob"]["quarantine"]["kind"] == "proposal", "operators still see it"


@pytest.mark.parametrize("scope", ["run", "federation"])
async def test_confirmed_eviction_has_the_scope_that_the_experiment_gives_to_evictions(
    api: Api, scope: str
) -> None:
    ada = await enrol(api, "ada")
    path = await next_run(api, True, server={"eviction": {"by": "operator", "scope": scope}})
    await answer(api, ada, path)
    run = api.live_run.stores.of_run("next-2")
    live_run = replace(api.live_run, run=run, records=run.records(api.runtime.blobs.of_run("x-1")))
    await live_run.open(0, ["ada"])
    await live_run.quarantine(0, ada=held(9, "proposal"))
    confirmed = await api.ask("POST", f"{path}/clients/ada/confirm", json={"reason": "it is"})
    assert confirmed.json()["evicted"] is True
    await next_run(api)
    assert (await ticket(api, ada)).kind == ("offer" if scope == "run" else "evicted")
    barred = (await api.ask("GET", "/v1/clients/ada")).json()["barred"]
    assert (barred is None) == (scope == "run")


async def test_client_reinstated_after_the_end_of_its_run_gets_the_final_models(api: Api) -> None:
    ada = await enrol(api, "ada")
    await answer(api, ada)
    await api.ask("POST", f"{RUN}/clients/ada/evict", json={"reason": "odd"})
    await next_run(api)
    assert (await ticket(api, ada, run="test-1")).kind == "evicted"
    refused = await api.ask("GET", f"{RUN}/models/global", ada)
    assert (refused.status_code, slug(refused)) == (403, "evicted")
    back = await api.ask("POST", f"{RUN}/clients/ada/reinstate", json={"reason": "a mistake"})
    assert back.json()["evicted"] is False
    assert (await ticket(api, ada, run="test-1")).kind == "done"
    # The tests' run has no model in the blob store, so its absence is all that is left to report.
    assert (await api.ask("GET", f"{RUN}/models/global", ada)).status_code == 404


async def test_decision_about_a_client_of_a_run_that_was_just_deleted_is_refused(api: Api) -> None:
    await answer(api, await enrol(api, "ada"))
    await next_run(api)
    runs, redis = api.live_run.stores.runs, api.live_run.stores.redis.client
    run = await api.runtime.run("test-1")
    await runs.delete("test-1", BY)
    await runs.forget("test-1")
    for verb in ("evict", "reinstate"):
        decide = getattr(run.stores.evictions, verb)
        with pytest.raises(RunNotFound, match="there is no run test-1"):
            check_decided(run, "ada", await decide("ada", BY), "it")
    assert await redis.keys(f"{run.stores.keys.prefix}*") == []


async def test_barred_client_is_evicted_from_every_run_until_reinstated(api: Api) -> None:
    ada = await enrol(api, "ada")
    await answer(api, ada)
    barred = await api.ask("POST", "/v1/clients/ada/evict", json={"reason": "stolen"})
    assert barred.json()["barred"]["reason"] == "stolen"
    assert (await api.ask("GET", f"{RUN}/members")).json()[0]["evicted"] is True
    reply = await ticket(api, ada)
    assert (reply.kind, reply.run, reply.reason) == ("evicted", "", "stolen")
    run = await next_run(api)
    assert (await ticket(api, ada)).kind == "evicted"
    assert await answer(api, ada, run) == (403, "evicted")
    refused = await api.ask("GET", f"{run}/models/global", ada)
    assert (refused.status_code, slug(refused)) == (403, "evicted"), "it never was a member"
    readmitted = await api.ask("POST", "/v1/clients/ada/reinstate", json={})
    assert readmitted.json()["barred"] is None
    assert (await ticket(api, ada)).kind == "offer"


async def test_no_client_is_offered_a_run_that_has_not_started(api: Api) -> None:
    tables = {"name": "later", "data": DATA, "model": "logistic"}
    await api.live_run.stores.runs.submit(Experiment.from_tables(tables), "x", BY)
    ada = await enrol(api, "ada")
    assert await answer(api, ada, "/v1/runs/later-2") == (409, "not-started")
    assert await answer(api, ada, "/v1/runs/later-3") == (404, "run-not-found")
    await api.live_run.run.state.end(api.live_run.fence, NOW)
    reply = await ticket(api, ada)
    assert (reply.kind, reply.run, reply.experiment) == ("wait", "", None)


async def test_unknown_token_cannot_tell_which_runs_exist(api: Api) -> None:
    for run in ("test-1", "test-2"):
        for path in ("rounds", "models/global", "experiment", "members"):
            refused = await api.ask("GET", f"/v1/runs/{run}/{path}", mint())
            assert (refused.status_code, slug(refused)) == (401, "unauthorized")


async def test_a_client_that_changes_its_answer_too_often_is_refused(api: Api) -> None:
    run, ada = await next_run(api), await enrol(api, "ada")
    outcomes = [await answer(api, ada, run, accept=bool(n % 2)) for n in range(ANSWERS + 1)]
    assert {status for status, _ in outcomes[:-1]} == {200}
    assert outcomes[-1] == (429, "too-many-requests")
    later = await next_run(api)
    assert (await answer(api, ada, later))[0] == 200, "it has not answered this run's offer"


async def test_answers_are_limited_per_hour(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run that waits for clients for days, answers must not fill the run's event log."""
    run, ada = await next_run(api), await enrol(api, "ada")
    clock, refused = time.time() // 3600 * 3600, 0
    for minute in range(60):
        monkeypatch.setattr(time, "time", lambda minute=minute: clock + 60.0 * minute)
        status, _ = await answer(api, ada, run, accept=bool(minute % 2))
        refused += status == 429
    assert refused == 60 - ANSWERS
