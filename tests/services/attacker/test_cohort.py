"""The cohort: when a round is complete, who may ask, and what it says without a tap."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from pydantic import SecretStr, ValidationError
from safetensors.numpy import load, save

from services.attacker.cohort import (
    REFERENCE,
    Cohort,
    CohortSettings,
    Tap,
    create_app,
)
from services.attacker.cohort_client import CohortClient

pytestmark = pytest.mark.anyio
TOKEN = "members-members-members"


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """A member's way to a cohort of two."""
    app = create_app(CohortSettings(members=2, token=SecretStr(TOKEN), patience=30))
    async with httpx.AsyncClient(
        base_url="http://cohort",
        transport=httpx.ASGITransport(app),
        headers={"Authorization": f"Bearer {TOKEN}"},
    ) as client:
        yield client


def member(http: httpx.AsyncClient, name: str) -> CohortClient:
    client = CohortClient("http://cohort", TOKEN, name)
    client._http = http
    return client


async def test_colluders_get_all_updates_once_the_last_has_shared(http: httpx.AsyncClient) -> None:
    one_D, two_D = np.float32([1, 2]), np.float32([3, 4])
    sent_D = np.float32([7, 8])
    late = asyncio.create_task(member(http, "a").exchange(3, "train", one_D, sent_D, wait=True))
    await asyncio.sleep(0.01)
    assert not late.done()
    found = await member(http, "b").exchange(3, "train", two_D, one_D, wait=True)
    assert list(found) == ["a", "b"]
    updates, sent = zip(*(await late).values(), strict=True)
    assert [v.tolist() for v in updates] == [[1, 2], [3, 4]]
    assert [v.tolist() for v in sent] == [[7, 8], [1, 2]]


@pytest.mark.parametrize("how", ["absent", "leave"])
async def test_nobody_waits_for_the_absent_and_the_gone(http: httpx.AsyncClient, how: str) -> None:
    """A member that was not drawn says so, in whatever round."""
    other = member(http, "b")
    await (other.absent(3) if how == "absent" else other.leave())
    one_D = np.float32([1])
    found = await member(http, "a").exchange(3, "probe", one_D, one_D, wait=True)
    assert list(found) == ["a"]


async def test_patience_ends() -> None:
    cohort = Cohort(members=2, patience=0.01)
    cohort.share(0, "train", "a", b"bytes")
    assert await cohort.gather(0, "train", wait=True) == {"a": b"bytes"}
    assert cohort.heard(0, "train") == {"a"}


async def test_strangers_are_refused(http: httpx.AsyncClient) -> None:
    answer = await http.get("/rounds/0/train", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401


async def test_without_a_tap_nobody_has_full_knowledge(http: httpx.AsyncClient) -> None:
    answer = await http.get("/rounds/0/train/honest")
    assert answer.status_code == 409
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        await member(http, "a").honest(0, "train", wait=True)


def test_the_tap_s_url_and_token_belong_together() -> None:
    with pytest.raises(ValidationError, match="belong together"):
        CohortSettings(members=1, token=SecretStr(TOKEN), tap="http://127.0.0.1:1")


async def test_the_tap_is_read_once_for_all_members() -> None:
    asked: list[str] = []

    def aggregator(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url.params))
        assert request.headers["authorization"] == "Bearer tap"
        body = save({REFERENCE: np.float32([0]), "z": np.float32([9])}, {"server": '{"f": 1}'})
        return httpx.Response(200, content=body)

    tap = Tap("http://aggregator", "tap", patience=5)
    await tap.close()
    tap._http = httpx.AsyncClient(
        base_url="http://aggregator",
        transport=httpx.MockTransport(aggregator),
        headers={"Authorization": "Bearer tap"},
    )
    bodies = await asyncio.gather(*(tap.read(0, "train", {"b", "a"}, True) for _ in range(3)))
    assert asked == ["without=a%2Cb&patience=5"]
    assert [float(load(body)["z"][0]) for body in bodies] == [9, 9, 9]
    await tap.read(0, "train", {"a"}, wait=False)
    assert asked[1:] == ["without=a&patience=0.0"]
    await tap.close()
