"""The route that sends models: how long a client may keep a response."""

import pytest

from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.shared.protocol.messages import RoundRecord
from tests.services.aggregator.api.conftest import RUN, Api

pytestmark = pytest.mark.anyio


async def publish(api: Api, round_: int, model: bytes) -> str:
    """Publishes a round with this global model; returns the model's digest."""
    live, blobs = api.live_run, api.runtime.blobs.of_run("test-1")
    digest = blobs.put(model)
    filed = await live.records.file(RoundRecord(round=round_, status="published"))
    position = await live.run.events.last_position()
    snapshot = Snapshot(global_model=digest, reference=digest)
    await live.run.rounds.publish(live.fence, filed, {}, snapshot, position)
    return digest


@pytest.mark.parametrize("name", ["global", "reference"])
async def test_a_name_whose_model_changes_is_asked_for_again(api: Api, name: str) -> None:
    path = f"{RUN}/models/{name}"
    await publish(api, 0, b"the first model")
    first = await api.ask("GET", path)
    assert first.headers["cache-control"] == "private, no-cache"
    known = {"If-None-Match": first.headers["etag"]}
    same = await api.ask("GET", path, headers=known)
    assert (same.status_code, same.content) == (304, b"")
    assert same.headers["cache-control"] == "private, no-cache"
    await publish(api, 1, b"the next model")
    other = await api.ask("GET", path, headers=known)
    assert (other.status_code, other.content) == (200, b"the next model")


async def test_a_model_named_by_its_digest_may_be_kept(api: Api) -> None:
    digest = await publish(api, 0, b"a model")
    kept = await api.ask("GET", f"{RUN}/models/{digest}")
    assert kept.headers["cache-control"] == "private, immutable, max-age=31536000"
