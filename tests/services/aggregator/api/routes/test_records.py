"""Tests of the routes for records: pages, filters, mixing weights, and the verdict matrix.

Legend: N clients, R rounds.
"""

import base64
import gzip
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load

from rampart_fl.services.aggregator.api.app import create_app
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord
from rampart_fl.shared.protocol.stored_rounds import (
    RoundFigures,
    RoundPage,
    StoredRound,
    VerdictMatrix,
)

pytestmark = pytest.mark.anyio
TOKEN = "operators-own-token"
DIGEST = "d" * 64
DECISIONS = ("accepted", "rejected", "evicted")
ROUNDS = 14
BOUND = 1500
"""Bytes that the newest rounds may take in Redis; few enough to make several segments."""


def verdicts(round_: int) -> list[VerdictRecord]:
    """Verdicts on six clients; in even rounds, the last client has no verdict."""
    return [
        VerdictRecord(
            client=f"c-{number}",
            decision=DECISIONS[number % 3],  # type: ignore[arg-type]  # A str, not a Literal.
            detector="test",
            score=None if number == 1 else round_ + number / 8,
            threshold=1.0,
            reason="because",
        )
        for number in range(6 if round_ % 2 else 5)
    ]


def record(round_: int) -> RoundRecord:
    mixing = {} if round_ == 3 else {"c-0": {"c-0": 0.75, "c-1": 0.25}}
    return RoundRecord(round=round_, status="published", verdicts=verdicts(round_), mixing=mixing)


class Api:
    """An application whose federation has finished some rounds."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
        token = {"Authorization": f"Bearer {TOKEN}"}
        self.http = httpx.AsyncClient(transport=transport, base_url="http://test", headers=token)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.get(f"/v1/runs/test-1/{path}", headers=all_headers)

    async def page(self, query: str) -> RoundPage:
        answer = await self.get(f"rounds/1{query}")
        assert answer.status_code == 200, answer.text
        return RoundPage.model_validate_json(answer.content)

    async def matrix(self, query: str, **headers: str) -> VerdictMatrix:
        answer = await self.get(f"verdicts{query}", **headers)
        assert answer.status_code == 200, answer.text
        return VerdictMatrix.model_validate_json(answer.content)

    async def publish(self, fence: int, one: RoundRecord) -> None:
        run, snapshot = (
            await self.runtime.run("test-1"),
            Snapshot(global_model=DIGEST, reference=DIGEST),
        )
        await run.stores.rounds.open(fence, one.round, "collecting", 0.0, None, {}, [])
        filed = await replace(run.records, bound=BOUND).file(one)
        await run.stores.rounds.publish(fence, filed, {}, snapshot, "0-0")


@pytest.fixture
async def api(redis_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    runtime = Runtime(
        Settings(
            operator_token=TOKEN,
            redis_url=redis_url,
            namespace=f"test-{secrets.token_hex(6)}",
            blobs=str(tmp_path / "blobs"),
            blob_cache=tmp_path / "cache",
        )
    )
    experiment = Experiment.from_tables(
        {"name": "test", "data": {"dataset": "digits"}, "model": "logistic", "rounds": 3}
    )
    fence = await runtime.stores.lease.acquire("worker", 60, 0.0)
    assert fence is not None
    snapshot = Snapshot(global_model=DIGEST, reference=DIGEST)
    info, _ = await runtime.stores.runs.submit(experiment, "a", Attribution("ada", "", 0.0))
    run = runtime.stores.of_run(info.run)
    await run.state.start(fence, experiment, ModelSpec.of([]), snapshot, 0.0)
    api = Api(runtime)
    for number in range(ROUNDS):
        await api.publish(fence, record(number))
    assert await runtime.stores.redis.client.hlen(run.keys.segments) > 1
    assert await runtime.stores.redis.client.hlen(run.keys.history) > 0
    yield api
    await api.http.aclose()
    await runtime.close()


async def test_rounds_are_listed_as_they_were_published(api: Api) -> None:
    answer = await api.get("rounds?since=4&limit=7")
    body = [StoredRound.model_validate(one) for one in answer.json()]
    assert [one.round for one in body] == list(range(4, 11))
    for one in body:
        assert one.mixing_digest is not None
        facts = one.model_dump(exclude={"mixing_digest"})
        assert facts == record(one.round).model_dump(exclude={"mixing"})
    assert (await api.get("rounds?since=999")).json() == []
    assert len((await api.get("rounds?limit=1000")).json()) == ROUNDS


async def test_deleted_round_record_is_skipped_in_lists_and_gets_404(api: Api) -> None:
    run = await api.runtime.run("test-1")
    entry = await run.records.entry(5)
    assert entry is not None
    run.blobs.delete([entry.record])
    body = (await api.get("rounds?since=4&limit=3")).json()
    assert [one["round"] for one in body] == [4, 6]
    answer = await api.get("rounds/5")
    assert (answer.status_code, "no longer kept" in answer.json()["detail"]) == (404, True)


async def test_verdicts_are_filtered_and_paged(api: Api) -> None:
    whole = await api.page("")
    assert (whole.verdicts, whole.matching) == (verdicts(1), 6)
    rejected = await api.page("?decision=rejected")
    assert [v.client for v in rejected.verdicts] == ["c-1", "c-4"]
    assert rejected.matching == 2
    one = await api.page("?client=c-4")
    assert ([v.client for v in one.verdicts], one.matching) == (["c-4"], 1)
    assert (await api.page("?client=c-4&decision=accepted")).matching == 0
    second = await api.page("?offset=2&limit=3")
    assert ([v.client for v in second.verdicts], second.matching) == (["c-2", "c-3", "c-4"], 6)
    last = await api.page("?decision=evicted&offset=1&limit=1")
    assert ([v.client for v in last.verdicts], last.matching) == (["c-5"], 2)
    assert (await api.page("?offset=6")).verdicts == []


async def test_mixing_weights_are_served_as_safetensors(api: Api) -> None:
    answer = await api.get("rounds/2/weights")
    assert answer.headers["content-type"] == "application/vnd.safetensors"
    np.testing.assert_array_equal(load(answer.content)["mixing"], [[0.75, 0.25]])
    assert (await api.get("rounds/3/weights")).status_code == 404
    assert (await api.get(f"rounds/{ROUNDS}/weights")).status_code == 404


async def test_verdict_matrix_contains_every_verdict(api: Api) -> None:
    matrix = await api.matrix(f"?from=3&to={ROUNDS + 5}")
    assert matrix.clients == [f"c-{number}" for number in range(6)]
    assert matrix.rounds == list(range(3, ROUNDS))
    assert matrix.decisions == ["a" * 11, "r" * 11, "e" * 11, "a" * 11, "r" * 11, "e.e.e.e.e.e"]
    scores_NR = np.frombuffer(base64.b64decode(matrix.scores), "<f4").reshape(6, 11)
    expected_NR = [
        [np.nan if n == 1 or (n == 5 and r % 2 == 0) else r + n / 8 for r in matrix.rounds]
        for n in range(6)
    ]
    np.testing.assert_allclose(scores_NR, expected_NR, rtol=2**-12)
    assert (await api.matrix("")).rounds == list(range(ROUNDS))
    nothing = await api.matrix("?from=500&to=600")
    assert (nothing.clients, nothing.rounds, nothing.decisions) == ([], [], [])


async def test_verdict_matrix_is_gzipped_only_on_request(api: Api) -> None:
    plain = await api.get("verdicts", accept_encoding="identity")
    async with api.http.stream(
        "GET", "/v1/runs/test-1/verdicts", headers={"Accept-Encoding": "gzip"}
    ) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(raw)) == plain.json()
    assert "content-encoding" not in plain.headers


NINES = "9" * 5000
HOSTILE = {
    "unknown-decision": "rounds/1?decision=excused",
    "no-decision": "rounds/1?decision=",
    "two-lines": "rounds/1?client=a%0Ab",
    "long-client": f"rounds/1?client={'a' * 65}",
    "null": "rounds/1?client=%00",
    "negative-offset": "rounds/1?offset=-1",
    "endless-offset": f"rounds/1?offset={NINES}",
    "no-limit": "rounds/1?limit=0",
    "large-limit": "rounds/1?limit=10001",
    "limit-in-words": "rounds/1?limit=all",
    "negative-round": "rounds/-1/weights",
    "endless-round": f"rounds/{NINES}/weights",
    "round-in-words": "rounds/last/weights",
    "long-list": "rounds?limit=1001",
    "backwards": "verdicts?from=5&to=4",
    "long-range": "verdicts?from=0&to=1000",
    "negative-from": "verdicts?from=-1",
    "endless-to": f"verdicts?to={NINES}",
    "fraction": "verdicts?from=1.5",
}


@pytest.mark.parametrize("path", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_path_and_query_values_are_refused(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:rampart:invalid-request"


@pytest.mark.parametrize("path", ["rounds", "rounds/1", "rounds/1/weights", "verdicts"])
async def test_records_are_refused_without_an_operator_token(api: Api, path: str) -> None:
    answer = await api.get(path, Authorization="Bearer some-other-token-here")
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:rampart:unauthorized")


async def test_records_of_unstarted_and_unknown_runs_are_refused(api: Api) -> None:
    tables = {"name": "next", "data": {"dataset": "digits"}, "model": "logistic"}
    by = Attribution("ada", "", 0.0)
    await api.runtime.stores.runs.submit(Experiment.from_tables(tables), "b", by)
    for run, status, slug in (("next-2", 409, "not-started"), ("next-3", 404, "run-not-found")):
        for path in ("rounds", "rounds/1", "verdicts"):
            answer = await api.http.get(f"/v1/runs/{run}/{path}")
            assert (answer.status_code, answer.json()["type"]) == (status, f"urn:rampart:{slug}")


def test_round_page_adds_only_mixing_digest_and_matching_to_the_record() -> None:
    fields: set[str] = set(RoundRecord.model_fields) - {"mixing"}
    names: Any = set(RoundPage.model_fields)
    assert names == fields | {"mixing_digest", "matching"}


async def test_figures_summarize_rounds_and_the_part_of_one_client(api: Api) -> None:
    answer = await api.get("figures?from=2&limit=3&client=c-1")
    body = [RoundFigures.model_validate(one) for one in answer.json()]
    assert [one.round for one in body] == [2, 3, 4]
    assert body[0].decisions == {"accepted": 2, "rejected": 2, "evicted": 1}
    assert all(one.client is not None for one in body)
    first = body[0].client
    assert first is not None
    assert first.verdict == verdicts(2)[1]
    assert (await api.get("figures?limit=201")).status_code == 422
    assert len((await api.get("figures")).json()) == ROUNDS
