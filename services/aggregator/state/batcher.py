"""Batches requests that arrive while an earlier batch is being answered.

When a round opens, all waiting requests ask Redis the same questions at once; a batch answers these
questions in one round trip. Updates that arrive at about the same time are also recorded in one
batch, which needs only one fsync.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class RequestBatcher(Generic[Question, Answer]):
    """Collects questions while an earlier batch is being answered.

    Args:
        answer: returns the answers to a batch of questions, in the same order. If `answer` raises
            an error, `ask` raises this error for every question of the batch.
    """

    def __init__(self, answer: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]]) -> None:
        self._answer = answer
        self._pending: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._settling: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        """Adds a question to the next batch, and returns the answer to this question."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        self._pending.append((question, answered))
        if self._settling is None:
            self._settling = loop.create_task(self._settle_all())
        return await answered

    async def close(self) -> None:
        """Cancels all pending questions."""
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)
        # `_settle` cancels the questions of the current batch; this loop cancels all others.
        for _, answered in self._pending:
            answered.cancel()

    async def _settle_all(self) -> None:
        try:
            while self._pending:
                pending, self._pending = self._pending, []
                await self._settle(pending)
        finally:
            self._settling = None

    async def _settle(self, pending: Sequence[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._answer([question for question, _ in pending])
        except asyncio.CancelledError:
            for _, answered in pending:
                answered.cancel()
            raise
        except Exception as error:  # Every question in this batch fails with this error.
            for _, answered in pending:
                if not answered.done():
                    answered.set_exception(error)
            return
        for (_, answered), answer in zip(pending, answers, strict=True):
            if not answered.done():
                answered.set_result(answer)
