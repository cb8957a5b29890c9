"""Uploads that arrive together: each gets its own receipt, and a failed fsync counts none."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from rampart_fl.services.aggregator.api import upload_permits
from rampart_fl.services.aggregator.api.model_responses import PIECE
from rampart_fl.services.aggregator.api.recent_models import LARGEST
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.services.aggregator.api.conftest import RUN, Api, slug
from tests.services.aggregator.api.routes.test_members import answer, enrol, next_run

pytestmark = pytest.mark.anyio
Customize = Callable[[str, str], Awaitable[httpx.Response]]
NAMES = [f"client-{number:02d}" for number in range(30)]


SPEC = ModelSpec.of([("w", (2,))])


def upload(samples: int) -> bytes:
    """An update that claims this number of samples."""
    report = {"report": f'{{"samples": {samples}}}'}
    return wire.encode(SPEC, np.zeros(SPEC.dim, np.float32), report)


async def put(
    api: Api, token: str, data: bytes, path: str = "/rounds/0/update", run: str = RUN
) -> httpx.Response:
    """Sends an upload."""
    transport = httpx.ASGITransport(api.app)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": wire.MEDIA_TYPE}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.put(f"{run}{path}", content=data, headers=headers)


async def shrink(run: RunStores) -> None:
    """Gives a run the small model."""
    await run.state.redis.client.hset(run.keys.state, "spec", SPEC.model_dump_json())


@pytest.fixture
async def tokens(api: Api, live_run: Any) -> list[str]:
    """The tokens of the clients, which have tickets for round 0 of a run with a small model."""
    await shrink(live_run.run)
    tokens = [await enrol(api, name) for name in NAMES]
    for name in NAMES:
        answer = AnswerRecord(accept=True, at=0.0)
        await live_run.run.members.answer(name, answer, 100)
    await live_run.open(0, NAMES)
    return tokens


async def put_all(api: Api, tokens: list[str]) -> list[httpx.Response]:
    """Sends one upload for each client at the same time."""
    return await asyncio.gather(
        *(put(api, token, upload(number + 1)) for number, token in enumerate(tokens))
    )


async def test_each_simultaneous_upload_counts_once(
    api: Api, live_run: Any, tokens: list[str]
) -> None:
    answers = await put_all(api, tokens)
    receipts = [Receipt.model_validate_json(answer.content) for answer in answers]
    assert [receipt.client for receipt in receipts] == NAMES
    assert [receipt.samples for receipt in receipts] == list(range(1, len(NAMES) + 1))
    blobs = (await api.runtime.run("test-1")).blobs
    for receipt in receipts:
        with blobs.open(receipt.digest) as file:
            assert file.read() == upload(receipt.samples)
    assert await live_run.run.uploads.receipts(0) == receipts

    again = await put_all(api, tokens)
    assert [answer.content for answer in again] == [answer.content for answer in answers]
    changed = await put(api, tokens[0], upload(77))
    assert slug(changed) == "conflict"
    events = await live_run.run.events.read("0-0", 0.001)
    counted = [event.client for event in events if event.type == "update"]
    assert sorted(counted) == NAMES, "each upload is one event, however often it was sent"


async def test_upload_is_accepted_only_by_the_run_that_issued_its_ticket(
    api: Api, live_run: Any, tokens: list[str]
) -> None:
    """Three members of the first run: in the next, one has a ticket, one has none, one is out."""
    first = [await put(api, token, upload(3)) for token in tokens[:1]]
    kept = Receipt.model_validate_json(first[0].content)
    body = {"labels": {"site": "eu"}}
    for name in NAMES[:2]:
        await api.ask("PUT", f"/v1/clients/{name}/labels", json=body)
    run = await next_run(api, slots_assigned=True, clients={"select": {"site": ["eu"]}})
    following = replace(live_run, run=live_run.stores.of_run("next-2"))
    await shrink(following.run)
    for token, status in zip(tokens[:3], ((200, 0), (200, 1), (403, "not-a-member")), strict=True):
        result, said = await answer(api, token, run)
        assert (result, said["slot"] if result == 200 else said) == status
    await following.open(0, NAMES[1:2])

    for token, refused in ((tokens[0], (409, "no-ticket")), (tokens[2], (403, "not-a-member"))):
        for kind in ("update", "probe"):
            said = await put(api, token, upload(3), f"/rounds/0/{kind}", run)
            assert (said.status_code, slug(said)) == refused, "its receipt is the first run's"
    assert await following.run.uploads.receipts(0) == []

    accepted = await put(api, tokens[1], upload(3), run=run)
    assert accepted.status_code == 200
    late = await put(api, tokens[2], upload(3))
    assert (late.status_code, slug(late)) == (410, "late"), "its ticket ended with its run"
    assert await live_run.run.uploads.receipts(0) == [kept]
    counted = [receipt.client for receipt in await following.run.uploads.receipts(0)]
    assert counted == NAMES[1:2]


async def test_failed_fsync_counts_none_of_the_uploads(
    api: Api, live_run: Any, tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    answers = await put_all(api, tokens)
    assert {(answer.status_code, slug(answer)) for answer in answers} == {(503, "unavailable")}
    assert await live_run.run.uploads.receipts(0) == []
    monkeypatch.undo()
    answers = await put_all(api, tokens)
    assert {answer.status_code for answer in answers} == {200}
    assert len(await live_run.run.uploads.receipts(0)) == len(NAMES)


async def test_a_barred_client_gets_no_customized_model(api: Api, live_run: Any) -> None:
    await shrink(live_run.run)
    eve, dan = await enrol(api, "eve"), await enrol(api, "dan")
    for name in ("eve", "dan"):
        await live_run.run.members.answer(name, AnswerRecord(accept=True, at=0.0), 100)
    assert (await api.ask("POST", f"{RUN}/clients/eve/evict", json={})).status_code == 200
    assert (await api.ask("POST", "/v1/clients/dan/evict", json={})).status_code == 200
    for token in (eve, dan):
        headers = {"Content-Type": wire.MEDIA_TYPE}
        refused = await api.ask(
            "POST", f"{RUN}/customize", token, content=upload(3), headers=headers
        )
        assert (refused.status_code, slug(refused)) == (403, "evicted")


@pytest.fixture
async def customize(api: Api, live_run: Any) -> AsyncIterator[Customize]:
    """Asks for a customized model; a worker answers every request with the given digest."""
    await shrink(live_run.run)

    async def work(made: str) -> None:
        position = await live_run.run.events.last_position()
        while True:
            for event in await live_run.run.events.read(position, 0.1):
                position = event.position
                if event.type == "customize":
                    await live_run.run.customizations.answer(live_run.fence, event.request, made)

    async def ask(token: str, made: str) -> httpx.Response:
        working = asyncio.create_task(work(made))
        try:
            headers = {"Content-Type": wire.MEDIA_TYPE}
            return await api.ask(
                "POST", f"{RUN}/customize", token, content=upload(3), headers=headers
            )
        finally:
            working.cancel()

    listening = asyncio.create_task(api.runtime.hub.run())
    yield ask
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_large_customized_model_is_never_entirely_in_memory(
    api: Api, customize: Customize, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(LARGEST + 1)
    made = (await api.runtime.run("test-1")).blobs.put(content)
    pieces, whole = list[int](), api.served.__call__

    async def served(scope: Any, receive: Any, send: Any) -> None:
        async def note(message: Any) -> None:
            pieces.append(len(message.get("body", b"")))
            await send(message)

        await whole(scope, receive, note)

    monkeypatch.setattr(api, "served", served)
    answer = await customize(api.owner, made)
    assert (answer.status_code, answer.headers["etag"]) == (200, f'"{made}"')
    assert answer.content == content
    assert max(pieces) <= PIECE


async def test_a_request_of_an_operator_is_not_one_of_the_client_with_the_same_name(
    api: Api, live_run: Any, customize: Customize
) -> None:
    """The operator `ada` and the client `ada` ask for a model at the same time.

    Workers of earlier versions accept only the forms of client ids in events.
    """
    client, operator = await enrol(api, "ada"), await api.add("ada", "operator")
    assert (await answer(api, client))[0] == 200
    made = (await api.runtime.run("test-1")).blobs.put(b"a model")
    answers = await asyncio.gather(*(customize(token, made) for token in (client, operator)))
    assert [(one.status_code, one.content) for one in answers] == [(200, b"a model")] * 2
    events = await live_run.run.events.read("0-0", 0.001)
    names = {event.client for event in events if event.type == "customize"}
    assert names == {"ada", "operator"}


async def test_a_customized_model_that_was_deleted_is_not_found(
    api: Api, customize: Customize
) -> None:
    answer = await customize(api.owner, "e" * 64)
    assert (answer.status_code, slug(answer)) == (404, "not-found")


async def test_an_upload_counts_only_if_its_token_is_still_valid_when_the_body_has_arrived(
    api: Api, live_run: Any, tokens: list[str]
) -> None:
    """The first client's token is revoked, and the second client replaces its own token."""
    began, lost = [asyncio.Event(), asyncio.Event()], asyncio.Event()

    async def body(begun: asyncio.Event) -> AsyncIterator[bytes]:
        yield upload(3)[:10]
        begun.set()
        await lost.wait()
        yield upload(3)[10:]

    async def send(token: str, begun: asyncio.Event) -> httpx.Response:
        headers = {"Content-Type": wire.MEDIA_TYPE, "Content-Length": str(len(upload(3)))}
        path = f"{RUN}/rounds/0/update"
        return await api.ask("PUT", path, token, content=body(begun), headers=headers)

    uploads = [asyncio.create_task(send(*pair)) for pair in zip(tokens[:2], began, strict=True)]
    await asyncio.gather(*(one.wait() for one in began))
    assert (await api.ask("DELETE", f"/v1/clients/{NAMES[0]}/token")).status_code == 204
    renewed = mint()
    change = {"token_hash": token_hash(renewed)}
    path = f"/v1/clients/{NAMES[1]}/token"
    assert (await api.ask("PUT", path, tokens[1], json=change)).status_code == 200
    lost.set()
    for refused in await asyncio.gather(*uploads):
        assert (refused.status_code, slug(refused)) == (401, "unauthorized")
    assert await live_run.run.uploads.receipts(0) == []
    assert (await put(api, renewed, upload(3))).status_code == 200


async def test_a_token_that_expires_during_an_upload_is_refused(
    api: Api, live_run: Any, tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = time.time() + 366 * 86_400

    async def body() -> AsyncIterator[bytes]:
        yield upload(3)[:10]
        monkeypatch.setattr(time, "time", lambda: expired)
        yield upload(3)[10:]

    headers = {"Content-Type": wire.MEDIA_TYPE, "Content-Length": str(len(upload(3)))}
    path = f"{RUN}/rounds/0/update"
    refused = await api.ask("PUT", path, tokens[0], content=body(), headers=headers)
    assert (refused.status_code, slug(refused)) == (401, "unauthorized")
    assert await live_run.run.uploads.receipts(0) == []


async def test_an_upload_after_the_end_of_the_round_is_refused_before_it_is_read(
    api: Api, live_run: Any, tokens: list[str]
) -> None:
    await live_run.run.rounds.close(live_run.fence, 0, "0-0")
    refused = await put(api, tokens[0], b"not even an update")
    assert (refused.status_code, slug(refused)) == (410, "late")
    waiting = await api.ask("GET", "/v1/ticket", tokens[0])
    assert waiting.json()["kind"] == "wait"


async def test_an_evaluation_with_impossible_counts_is_refused_as_an_invalid_claim(
    api: Api, live_run: Any, tokens: list[str]
) -> None:
    metrics = {"test_samples": 1, "correct_customized": 1e15}
    path = f"{RUN}/rounds/0/evaluation"
    refused = await api.ask("PUT", path, tokens[0], json={"metrics": metrics})
    assert (refused.status_code, slug(refused)) == (422, "invalid-claim")
    assert "correct_customized is 1e+15; it must be between 0 and 1000000000" in refused.text


async def test_customized_models_and_updates_have_separate_upload_permits(
    api: Api, tokens: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_permits, "PATIENCE", 0.05)
    async with AsyncExitStack() as stack:
        for number in range(api.runtime.settings.uploads // 8):
            permit = api.runtime.customization_permits.take(f"slow-{number}")
            await stack.enter_async_context(permit)
        headers = {"Content-Type": wire.MEDIA_TYPE}
        refused = await api.ask("POST", f"{RUN}/customize", content=upload(1), headers=headers)
        assert (refused.status_code, slug(refused)) == (429, "too-many-requests")
        assert (await put(api, tokens[0], upload(1))).status_code == 200
