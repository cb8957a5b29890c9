"""The cohort: when a round is complete, who has access, and the answer without a tap."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from fastapi import HTTPException
from pydantic import SecretStr, ValidationError
from safetensors.numpy import load, save

from rampart_fl.services.attacker import cohort_client
from rampart_fl.services.attacker.cohort import (
    CohortSettings,
    SharedUpdates,
    create_app,
)
from rampart_fl.services.attacker.cohort_client import CohortClient
from rampart_fl.services.attacker.tap import Tap
from rampart_fl.shared.agent.client import RequestRefused
from rampart_fl.shared.errors import ConfigurationError, Unavailable
from rampart_fl.shared.protocol.tap import REFERENCE

pytestmark = pytest.mark.anyio
TOKEN = "members-members-members"
RUN = "x-1"


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """A member's connection to a cohort of two."""
    app = create_app(CohortSettings(members=2, token=SecretStr(TOKEN), patience=30))
    async with httpx.AsyncClient(
        base_url="http://cohort",
        transport=httpx.ASGITransport(app),
        headers={"Authorization": f"Bearer {TOKEN}"},
    ) as client:
        yield client


def member(http: httpx.AsyncClient, name: str) -> CohortClient:
    client = CohortClient("http://cohort", TOKEN, name, RUN)
    client._http = http
    return client


async def test_colluders_get_all_updates_once_every_member_has_shared(
    http: httpx.AsyncClient,
) -> None:
    one_D, two_D = np.float32([1, 2]), np.float32([3, 4])
    sent_D = np.float32([7, 8])
    late = asyncio.create_task(member(http, "a").exchange(3, "train", one_D, sent_D, wait=True))
    await asyncio.sleep(0.01)
    assert not late.done()
    result = await member(http, "b").exchange(3, "train", two_D, one_D, wait=True)
    assert list(result) == ["a", "b"]
    updates, sent = zip(*(await late).values(), strict=True)
    assert [v.tolist() for v in updates] == [[1, 2], [3, 4]]
    assert [v.tolist() for v in sent] == [[7, 8], [1, 2]]


async def test_members_that_do_not_collude_share_without_waiting(http: httpx.AsyncClient) -> None:
    one_D, two_D = np.float32([1, 2]), np.float32([3, 4])
    async with asyncio.timeout(5):
        await member(http, "b").share(3, "train", two_D, one_D)
        shared = await member(http, "a").exchange(3, "train", one_D, one_D, wait=True)
    assert [[v.tolist() for v in shared[name]] for name in ("a", "b")] == [
        [[1, 2], [1, 2]],
        [[3, 4], [1, 2]],
    ]


@pytest.mark.parametrize("how", ["absent", "leave"])
async def test_members_do_not_wait_for_absent_or_departed_members(
    http: httpx.AsyncClient, how: str
) -> None:
    """A member that was not selected reports this for its round."""
    other = member(http, "b")
    await (other.report_absence(3) if how == "absent" else other.leave())
    one_D = np.float32([1])
    waits = member(http, "a")
    updates = await waits.exchange(3, "probe", one_D, one_D, wait=True)
    assert list(updates) == ["a"]
    assert waits.gone == (how == "leave"), "colluders know which of them were evicted"


@pytest.mark.parametrize("how", ["absent", "shares"])
async def test_a_reinstated_member_is_awaited_again(http: httpx.AsyncClient, how: str) -> None:
    one_D, other = np.float32([1]), member(http, "b")
    await other.leave()
    if how == "absent":
        await other.report_absence(3)
    else:
        await other.share(3, "train", one_D, one_D)
    waits = member(http, "a")
    late = asyncio.create_task(waits.exchange(4, "train", one_D, one_D, wait=True))
    await asyncio.sleep(0.01)
    assert not late.done()
    await other.exchange(4, "train", one_D, one_D, wait=True)
    assert list(await late) == ["a", "b"] and waits.gone == 0


async def test_members_that_train_do_not_delay_members_that_are_probed(
    http: httpx.AsyncClient,
) -> None:
    """A round may have both kinds of ticket; after the probe, all members train."""
    trained_D, probed_D = np.float32([1]), np.float32([2])
    trains = member(http, "a").exchange(3, "train", trained_D, trained_D, wait=True)
    training = asyncio.create_task(trains)
    await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        probed = await member(http, "b").exchange(3, "probe", probed_D, probed_D, wait=True)
        assert list(probed) == ["b"]
        assert not training.done()
        both = await member(http, "b").exchange(3, "train", probed_D, probed_D, wait=True)
        assert list(both) == list(await training) == ["a", "b"]


async def test_gather_returns_without_missing_members_after_the_timeout() -> None:
    two = SharedUpdates(members=2, patience=0.01)
    two.share(RUN, 0, "train", "a", b"12345678")
    assert await two.gather(RUN, 0, "train", wait=True) == {"a": b"12345678"}
    assert two.known(RUN) == {"a"}


def test_members_stay_known_after_the_round_in_which_they_reported() -> None:
    """The test tap also leaves out uploads that a member shared in an earlier round."""
    three = SharedUpdates(members=3, patience=1)
    three.share(RUN, 0, "train", "a", b"12345678")
    three.mark_absent(RUN, 0, "b")
    three.leave(RUN, "c")
    three.share(RUN, 9, "train", "a", b"12345678")
    assert three.known(RUN) == {"a", "b", "c"}
    three.share("x-2", 0, "train", "a", b"12345678")
    assert three.known(RUN) == set(), "a run that is over"


async def test_requests_without_the_cohort_token_are_refused(http: httpx.AsyncClient) -> None:
    answer = await http.get("/runs/x-1/rounds/0/train", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401
    http.headers["Authorization"] = "Bearer wrong"
    with pytest.raises(ConfigurationError, match=r"cohort http://cohort.*401.*not a member"):
        await member(http, "a").report_absence(0)


@pytest.mark.parametrize("body", [b"", b"1234", b"123456789", bytes(16)])
async def test_update_of_another_size_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    """The other members continue with the updates that fit."""
    assert (await http.put("/runs/x-1/rounds/0/train/a", content=bytes(8))).status_code == 204
    answer = await http.put("/runs/x-1/rounds/0/train/b", content=body)
    assert (answer.status_code, "other members shared [8]" in answer.text) == (422, True)
    result = await http.get("/runs/x-1/rounds/0/train?wait=false")
    assert {name: len(vector) for name, vector in load(result.content).items()} == {"a": 2}


async def test_member_shares_again_if_the_cohort_lost_its_update(http: httpx.AsyncClient) -> None:
    """The cohort may restart while its members wait."""
    one_D, methods = np.float32([1, 2]), list[str]()

    async def forgetful(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        if request.method == "GET" and methods.count("GET") == 1:
            return httpx.Response(200, content=save({"b": np.float32([0, 0, 0, 0])}, {"gone": "0"}))
        content = await request.aread()
        return await http.request(request.method, request.url.raw_path.decode(), content=content)

    other = httpx.AsyncClient(
        base_url="http://cohort", transport=httpx.MockTransport(forgetful), headers=http.headers
    )
    updates = await member(other, "a").exchange(0, "train", one_D, one_D, wait=False)
    assert methods == ["PUT", "GET", "PUT", "GET"]
    assert list(updates) == ["a"]
    async with asyncio.timeout(5):
        answer = await http.get("/runs/x-1/rounds/0/train?member=b")
        assert list(load(answer.content)) == ["a"], "b is not let wait for itself"
    await other.aclose()


async def test_unreachable_cohort_is_retried_and_then_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [httpx.ConnectError("away"), httpx.Response(503), httpx.Response(204)]

    def answer(request: httpx.Request) -> httpx.Response:
        following = answers.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    async def at_once(seconds: float) -> None:
        assert seconds <= 2

    monkeypatch.setattr(asyncio, "sleep", at_once)
    away = httpx.AsyncClient(base_url="http://cohort", transport=httpx.MockTransport(answer))
    await member(away, "a").report_absence(0)
    assert not answers
    monkeypatch.setattr(cohort_client, "PATIENCE", 0.0)
    answers += [httpx.ConnectError("nobody there")]
    with pytest.raises(Unavailable, match=r"cohort http://cohort.*ConnectError: nobody there"):
        await member(away, "a").report_absence(0)
    await away.aclose()


async def test_redirects_and_damaged_answers_of_the_cohort_are_no_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cohort_client, "PATIENCE", 0.0)
    gzip = {"Content-Encoding": "gzip"}
    answers = {
        "moved": httpx.Response(307, headers={"Location": "https://other"}),
        "damaged": httpx.Response(200, headers=gzip, stream=httpx.ByteStream(b"no")),
    }
    away = httpx.AsyncClient(
        base_url="http://cohort",
        transport=httpx.MockTransport(lambda request: answers[request.url.path.split("/")[2]]),
    )
    lost = CohortClient("http://cohort", TOKEN, "a", "moved")
    lost._http = away
    with pytest.raises(ConfigurationError, match="http://cohort redirects to 'https://other'"):
        await lost.report_absence(0)
    damaged = CohortClient("http://cohort", TOKEN, "a", "damaged")
    damaged._http = away
    with pytest.raises(Unavailable, match="DecodingError"):
        await damaged.report_absence(0)
    await away.aclose()


async def test_invalid_cohort_url_is_rejected_without_retries() -> None:
    lost = CohortClient("cohort:8450", TOKEN, "a", RUN)
    with pytest.raises(ConfigurationError, match="cohort cohort:8450"):
        await lost.report_absence(0)
    await lost.close()


@pytest.mark.parametrize(
    ("code", "error"), [(410, RequestRefused), (401, ConfigurationError), (404, ConfigurationError)]
)
async def test_member_distinguishes_a_finished_round_from_a_refusing_tap(
    code: int, error: type[Exception]
) -> None:
    settings = CohortSettings(
        members=1, token=SecretStr(TOKEN), tap="http://tap", tap_token=SecretStr("t")
    )
    refusing = httpx.MockTransport(lambda _: httpx.Response(code, text="why"))
    with pytest.MonkeyPatch.context() as patch:
        build = httpx.AsyncClient
        patch.setattr(httpx, "AsyncClient", lambda **options: build(**options, transport=refusing))
        app = create_app(settings)
    async with httpx.AsyncClient(
        base_url="http://cohort",
        transport=httpx.ASGITransport(app),
        headers={"Authorization": f"Bearer {TOKEN}"},
    ) as http:
        with pytest.raises(error, match=f"the tap answers {code}: why"):
            await member(http, "a").honest(0, "train", wait=True)


async def test_full_knowledge_is_refused_without_a_tap(http: httpx.AsyncClient) -> None:
    answer = await http.get("/runs/x-1/rounds/0/train/honest")
    assert answer.status_code == 409
    with pytest.raises(ConfigurationError, match=r"409.*need the aggregator's test tap"):
        await member(http, "a").honest(0, "train", wait=True)


def test_tap_url_without_a_token_is_rejected() -> None:
    with pytest.raises(ValidationError, match="or neither"):
        CohortSettings(members=1, token=SecretStr(TOKEN), tap="http://127.0.0.1:1")


async def test_the_tap_is_read_once_for_all_members() -> None:
    queries: list[str] = []

    def aggregator(request: httpx.Request) -> httpx.Response:
        queries.append(str(request.url.params))
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
    bodies = await asyncio.gather(*(tap.read(RUN, 0, "train", {"b", "a"}, True) for _ in range(3)))
    assert queries == ["without=a%2Cb&patience=5"]
    assert [float(load(body)["z"][0]) for body in bodies] == [9, 9, 9]
    await tap.read(RUN, 0, "train", {"a"}, wait=False)
    assert queries[1:] == ["without=a&patience=0.0"]
    await tap.close()


async def test_failed_reads_of_the_tap_are_repeated_on_the_next_request() -> None:
    """A restart of the aggregator must not end its attackers."""
    answers = [
        httpx.ConnectError("away"),
        httpx.DecodingError("damaged"),
        httpx.Response(503),
        httpx.Response(200, content=b"x"),
    ]

    def aggregator(request: httpx.Request) -> httpx.Response:
        following = answers.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    tap = Tap("http://aggregator", "tap", patience=5)
    await tap.close()
    tap._http = httpx.AsyncClient(
        base_url="http://aggregator", transport=httpx.MockTransport(aggregator)
    )
    for _ in range(3):
        with pytest.raises(HTTPException) as refusal:
            await tap.read(RUN, 0, "train", set(), True)
        assert refusal.value.status_code == 503, "so that members ask again"
    assert await tap.read(RUN, 0, "train", set(), True) == b"x"
    await tap.close()


def test_tap_token_with_a_line_break_is_rejected_without_being_printed() -> None:
    with pytest.raises(ConfigurationError, match="the tap's token is empty, or contains") as caught:
        Tap("http://aggregator", "s3cret\n", patience=5)
    assert "s3cret" not in str(caught.value)
