"""One retry policy, with and without asyncio."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.runtime.retries import TemporaryFailure, repeat, repeat_blocking

pytestmark = pytest.mark.anyio
Attempt = Callable[[], int]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Pauses are recorded and end immediately; the clock advances by their length."""
    results: list[float] = []
    clock = time.monotonic

    async def note(seconds: float) -> None:
        results.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr(time, "sleep", results.append)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + sum(results))
    yield results


async def run(attempt: Attempt, patience: float, blocking: bool) -> int:
    async def same() -> int:
        return attempt()

    if blocking:
        return repeat_blocking(attempt, "there", patience)
    return await repeat(same, "there", patience)


def failing(times: int, failure: Exception) -> Attempt:
    left = [failure] * times

    def attempt() -> int:
        if left:
            raise left.pop()
        return 7

    return attempt


@pytest.mark.parametrize("blocking", [True, False])
async def test_pauses_grow_to_two_seconds(blocking: bool, pauses: list[float]) -> None:
    assert await run(failing(9, TemporaryFailure("away")), 3600, blocking) == 7
    for pause, most in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2, 2], strict=True):
        assert most / 2 <= pause <= most


@pytest.mark.parametrize("blocking", [True, False])
async def test_retry_after_header_lengthens_the_pause(blocking: bool, pauses: list[float]) -> None:
    busy = TemporaryFailure("busy", "30")
    assert await run(failing(1, busy), 3600, blocking) == 7
    assert 15 <= pauses[0] <= 30


@pytest.mark.parametrize("blocking", [True, False])
async def test_exhausted_patience_raises_with_the_last_reason(
    blocking: bool, pauses: list[float]
) -> None:
    with pytest.raises(Unavailable, match=r"^there does not answer: away$"):
        await run(failing(10**6, TemporaryFailure("away")), 20, blocking)
    assert 17 < sum(pauses) <= 20


@pytest.mark.parametrize("blocking", [True, False])
async def test_permanent_errors_are_raised_without_retry(
    blocking: bool, pauses: list[float]
) -> None:
    with pytest.raises(ZeroDivisionError):
        await run(failing(1, ZeroDivisionError()), 3600, blocking)
    assert not pauses
