"""Questions that are asked at the same moment, answered together.

A round that opens wakes every waiting request at once, and each asks the same things of Redis.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Batched(Generic[Question, Answer]):
    """Gathers the questions of one turn of the event loop.

    Args:
        answer: gives the answers to some questions, in their order; what it raises, all raise.
    """

    def __init__(self, answer: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]]) -> None:
        self._answer = answer
        self._asked: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._settling: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Answer:
        """The answer to one question, which is read after it was asked."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        self._asked.append((question, answered))
        if len(self._asked) == 1:
            loop.call_soon(self._start)
        return await answered

    async def close(self) -> None:
        """Gives up what is still being asked."""
        settling = list(self._settling)
        for task in settling:
            task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)

    def _start(self) -> None:
        asked, self._asked = self._asked, []
        task = asyncio.get_running_loop().create_task(self._settle(asked))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, asked: Sequence[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._answer([question for question, _ in asked])
        except asyncio.CancelledError:
            for _, answered in asked:
                answered.cancel()
            raise
        except Exception as error:  # Raised where it was asked.
            for _, answered in asked:
                if not answered.done():
                    answered.set_exception(error)
            return
        for (_, answered), answer in zip(asked, answers, strict=True):
            if not answered.done():
                answered.set_result(answer)
