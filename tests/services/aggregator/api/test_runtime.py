"""The parts of a process: its warnings about durability, and its blobs."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampart_fl.services.aggregator.api.runtime import NOT_DURABLE, Runtime
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.errors import Unavailable

pytestmark = pytest.mark.anyio


class Answers:
    """A Redis that gives these answers about its durability, then cancels the task that asks."""

    def __init__(self, *answers: bool | None) -> None:
        self.answers: Iterator[bool | None] = iter(answers)

    async def durable(self) -> bool:
        """The next answer; None means that Redis is unavailable."""
        try:
            answer = next(self.answers)
        except StopIteration:
            raise asyncio.CancelledError from None
        if answer is None:
            raise Unavailable("Redis: away")
        return answer


@pytest.mark.parametrize(
    ("answers", "warnings"),
    [
        ([True], []),
        ([False], [NOT_DURABLE]),
        ([False, False], [NOT_DURABLE]),
        ([False, True], []),
        ([True, False], [NOT_DURABLE]),
        ([None, False], [NOT_DURABLE]),
        ([False, None], [NOT_DURABLE]),
    ],
)
async def test_durability_warning_is_shown_only_while_redis_is_not_durable(
    answers: list[bool | None],
    warnings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings.model_validate({"operator_token": "x" * 16, "blobs": str(tmp_path)})
    runtime = Runtime(settings)
    monkeypatch.setattr(runtime.stores.redis, "durable", Answers(*answers).durable)
    monkeypatch.setattr("rampart_fl.services.aggregator.api.runtime.RETRY", 0.0)
    with pytest.raises(asyncio.CancelledError):
        await runtime.watch_durability(every=0.0)
    assert runtime.warnings == warnings
    await runtime.close()


async def test_federations_that_share_a_folder_do_not_share_blobs(tmp_path: Path) -> None:
    base = {"operator_token": "x" * 16, "blobs": f"{tmp_path}/"}
    one, other = (
        Runtime(Settings.model_validate({**base, "namespace": name})) for name in ("one", "other")
    )
    own, others = one.blobs.of_run("x-1"), other.blobs.of_run("x-1")
    digest = own.put(b"model")
    assert own.exists(digest)
    assert not others.exists(digest)
    assert others.sweep(set(), time.time() + 1.0) == 0
    assert own.exists(digest)
    await one.close()
    await other.close()
