"""Simultaneous requests share one round trip, and nothing else."""

import asyncio
from collections.abc import Sequence

import pytest

from rampart_fl.services.aggregator.state.batcher import RequestBatcher


class Oracle:
    """Doubles numbers, and records the requests of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.batcher = RequestBatcher(self.answer)

    async def answer(self, questions: Sequence[int]) -> list[int]:
        self.batches.append(list(questions))
        await asyncio.sleep(0)
        if 13 in questions:
            raise ValueError("unlucky")
        return [2 * question for question in questions]


def test_simultaneous_requests_share_a_batch_and_get_their_own_answers() -> None:
    async def ask() -> None:
        oracle = Oracle()
        assert await asyncio.gather(*map(oracle.batcher.ask, range(5))) == [0, 2, 4, 6, 8]
        assert oracle.batches == [[0, 1, 2, 3, 4]]

    asyncio.run(ask())


def test_request_during_a_running_batch_is_not_answered_from_that_batch() -> None:
    async def ask() -> None:
        oracle = Oracle()
        first = asyncio.create_task(oracle.batcher.ask(1))
        while not oracle.batches:
            await asyncio.sleep(0)
        # The first batch is running: its answer may be older than this request.
        assert await oracle.batcher.ask(1) == 2
        assert await first == 2
        assert oracle.batches == [[1], [1]]

    asyncio.run(ask())


def test_requests_during_a_running_batch_share_the_next_batch() -> None:
    async def ask() -> None:
        oracle = Oracle()
        first = asyncio.create_task(oracle.batcher.ask(1))
        while not oracle.batches:
            await asyncio.sleep(0)
        assert await asyncio.gather(*map(oracle.batcher.ask, (2, 3, 4))) == [4, 6, 8]
        assert await first == 2
        assert oracle.batches == [[1], [2, 3, 4]]

    asyncio.run(ask())


def test_failed_batch_fails_all_of_its_requests_but_no_later_request() -> None:
    async def ask() -> None:
        oracle = Oracle()
        answers = await asyncio.gather(*map(oracle.batcher.ask, (1, 13)), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["unlucky", "unlucky"]
        assert await oracle.batcher.ask(3) == 6

    asyncio.run(ask())


def test_cancelling_one_request_does_not_cancel_others_of_its_batch() -> None:
    async def ask() -> None:
        oracle = Oracle()
        leaving, staying = (asyncio.create_task(oracle.batcher.ask(n)) for n in (1, 2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == 4
        with pytest.raises(asyncio.CancelledError):
            await leaving

    asyncio.run(ask())


def test_close_cancels_requests_of_the_running_batch() -> None:
    async def ask() -> None:
        oracle = Oracle()
        asking = asyncio.create_task(oracle.batcher.ask(1))
        while not oracle.batches:
            await asyncio.sleep(0)
        await oracle.batcher.close()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())


def test_close_before_the_first_batch_cancels_its_requests() -> None:
    async def ask() -> None:
        oracle = Oracle()
        asking = asyncio.create_task(oracle.batcher.ask(1))
        await asyncio.sleep(0)
        await oracle.batcher.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not oracle.batches

    asyncio.run(ask())
