"""Simultaneous requests share one round trip, and nothing else."""

import asyncio
from collections.abc import Sequence

import pytest

from rampart_fl.services.aggregator.state.batcher import RequestBatcher


class Oracle:
    """Doubles numbers, and records which requests came together."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.batcher = RequestBatcher(self.answer)

    async def answer(self, questions: Sequence[int]) -> list[int]:
        self.asked.append(list(questions))
        await asyncio.sleep(0)
        if 13 in questions:
            raise ValueError("unlucky")
        return [2 * question for question in questions]


def test_questions_of_one_moment_are_answered_together_each_with_its_own() -> None:
    async def ask() -> None:
        oracle = Oracle()
        assert await asyncio.gather(*map(oracle.batcher.ask, range(5))) == [0, 2, 4, 6, 8]
        assert oracle.asked == [[0, 1, 2, 3, 4]]

    asyncio.run(ask())


def test_what_is_asked_later_is_read_later() -> None:
    async def ask() -> None:
        oracle = Oracle()
        first = asyncio.create_task(oracle.batcher.ask(1))
        while not oracle.asked:
            await asyncio.sleep(0)
        # The first answer is on its way: it may be older than this question.
        assert await oracle.batcher.ask(1) == 2
        assert await first == 2
        assert oracle.asked == [[1], [1]]

    asyncio.run(ask())


def test_what_is_asked_meanwhile_is_answered_together() -> None:
    async def ask() -> None:
        oracle = Oracle()
        first = asyncio.create_task(oracle.batcher.ask(1))
        while not oracle.asked:
            await asyncio.sleep(0)
        assert await asyncio.gather(*map(oracle.batcher.ask, (2, 3, 4))) == [4, 6, 8]
        assert await first == 2
        assert oracle.asked == [[1], [2, 3, 4]]

    asyncio.run(ask())


def test_a_failure_reaches_all_who_asked_and_nobody_after() -> None:
    async def ask() -> None:
        oracle = Oracle()
        answers = await asyncio.gather(*map(oracle.batcher.ask, (1, 13)), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["unlucky", "unlucky"]
        assert await oracle.batcher.ask(3) == 6

    asyncio.run(ask())


def test_who_goes_away_takes_nobody_along() -> None:
    async def ask() -> None:
        oracle = Oracle()
        leaving, staying = (asyncio.create_task(oracle.batcher.ask(n)) for n in (1, 2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == 4
        with pytest.raises(asyncio.CancelledError):
            await leaving

    asyncio.run(ask())


def test_what_is_asked_when_all_ends_is_given_up() -> None:
    async def ask() -> None:
        oracle = Oracle()
        asking = asyncio.create_task(oracle.batcher.ask(1))
        while not oracle.asked:
            await asyncio.sleep(0)
        await oracle.batcher.close()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())


def test_closing_before_the_first_batch_gives_its_question_up() -> None:
    async def ask() -> None:
        oracle = Oracle()
        asking = asyncio.create_task(oracle.batcher.ask(1))
        await asyncio.sleep(0)
        await oracle.batcher.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not oracle.asked

    asyncio.run(ask())
