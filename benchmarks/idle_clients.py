"""Clients that do not train; they upload almost the same bytes in each round.

So nearly all of the time is the aggregator's.

Legend: D coordinates.
"""

from pathlib import Path
from typing import Any

import numpy as np

from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.identity import establish
from rampart_fl.shared.agent.loop import participate
from rampart_fl.shared.agent.membership import next_run
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Ticket


def perceptron(hidden: int) -> ModelSpec:
    """The tensors of a perceptron on 64 inputs with 10 classes and one hidden layer."""
    return ModelSpec.of(
        [
            ("1.weight", (hidden, 64)),
            ("1.bias", (hidden,)),
            ("3.weight", (10, hidden)),
            ("3.bias", (10,)),
        ]
    )


class Idle:
    """A participant whose uploads differ only in the last number, which the round determines.

    Because the bytes differ, the aggregator can delete a round's uploads when the round is over, as
    it does with real clients.
    """

    def __init__(self, upload: bytes) -> None:
        self._upload = upload

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        """The bytes of the ticket's round."""
        last = np.float32(1e-6 * (ticket.round + 1)).tobytes()
        return self._upload[: -len(last)] + last

    async def evaluate(self, ticket: object, model: bytes) -> dict[str, float]:
        """Measures nothing."""
        return {}

    async def idle(self, ticket: object) -> None:
        """Waits."""


async def take_part(
    url: str,
    join_token: str,
    folder: Path,
    spec: ModelSpec,
    number: int,
    report: str = '{"samples": 100}',
    runs: int = 1,
) -> None:
    """Takes part as one client in a number of runs, one after another.

    Args:
        url: URL of the aggregator.
        join_token: the client's join token.
        folder: folder for the client's identity.
        spec: the tensors of the model.
        number: seed of the client's update.
        report: what the client claims about its update, as JSON.
        runs: number of runs.
    """

    async def accept(run: str, part: dict[str, Any]) -> tuple[bool, str, int | None]:
        del run, part
        return True, "", None

    vector_D = np.random.default_rng(number).standard_normal(spec.dim, np.float32)
    upload = wire.encode(spec, vector_D * np.float32(1e-3), {"report": report})
    identity = await establish(url, folder, join_token)
    connection, last = AggregatorClient(url, identity.token), None
    name = identity.client_id or ""
    for _ in range(runs):
        last = await next_run(connection, accept, name, last)
        last = await participate(connection, Idle(upload), name, last.run)
    await connection.close()
