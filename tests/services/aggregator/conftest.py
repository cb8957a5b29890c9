"""A store with a real Redis, and a federation in it."""

import json
import secrets
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import pytest

from rampart_fl.services.aggregator.state.redis_access import connect
from rampart_fl.services.aggregator.state.round_store import RoundStore
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord, Ticket

DIGEST = "d" * 64
NOW = 1_000_000.0
"""The time in tests, in Unix seconds."""


@dataclass
class Founded:
    """A federation in Redis with its worker's fence, and short methods for its transitions."""

    store: RoundStore
    fence: int

    def ticket(self, round_: int, kind: str = "train") -> Ticket:
        """A ticket that names one model."""
        return Ticket.model_validate(
            {"round": round_, "kind": kind, "models": {"model": DIGEST}, "experiment": DIGEST}
        )

    def receipt(
        self, client: str, round_: int = 0, kind: str = "update", digest: str = DIGEST
    ) -> Receipt:
        """A receipt of some bytes."""
        return Receipt.model_validate(
            {"round": round_, "kind": kind, "client": client, "digest": digest, "samples": 3}
        )

    async def join(self, *clients: str) -> None:
        """Registers clients."""
        for client in clients:
            await self.store.add_joins({f"join-{client}": {"expires_at": NOW + 60}})
            answer = await self.store.join(
                f"join-{client}", f"token-{client}", client, "", NOW, NOW + 600, 100
            )
            assert answer[:2] == ("joined", client)

    async def open(
        self,
        round_: int,
        clients: Iterable[str],
        kind: str = "train",
        phase: str = "collecting",
        deadline: float | None = None,
    ) -> None:
        """Opens a round with one kind of ticket for these clients."""
        tickets = {client: self.ticket(round_, kind) for client in clients}
        await self.store.open(self.fence, round_, phase, NOW, deadline, tickets, sorted(tickets))

    async def publish(self, record: RoundRecord, **evictions: str) -> None:
        """Publishes a record that evicts clients for reasons."""
        whys = {client: {"reason": reason} for client, reason in evictions.items()}
        position = await self.store.last_event()
        snapshot = {"global_model": DIGEST, "round": record.round}
        await self.store.publish(self.fence, record, whys, snapshot, position)

    async def happened(self) -> list[str]:
        """Types of all events, in order."""
        return [event.type for event in await self.store.events("0-0", 0.001)]


def fields(policy: str = "sync") -> dict[str, str]:
    """The data with which a worker creates a federation."""
    return {
        "experiment": json.dumps({"name": "test", "rounds": 3}),
        "spec": json.dumps({"tensors": []}),
        "policy": policy,
        "status": "running",
        "phase": "joining",
        "round": "0",
        "alive_at": str(NOW),
        "snapshot": json.dumps({"global_model": DIGEST}),
    }


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[RoundStore]:
    """A store in a namespace of its own."""
    client = connect(redis_url, None)
    yield RoundStore(client, f"test-{secrets.token_hex(6)}")
    await client.aclose()


@pytest.fixture
def policy() -> str:
    """The round policy of `founded`; tests parametrize it."""
    return "sync"


@pytest.fixture
async def founded(store: RoundStore, policy: str) -> Founded:
    """A federation in Redis."""
    fence = await store.acquire("worker", 60, NOW)
    assert fence is not None
    assert await store.found(fence, DIGEST, fields(policy)) == ("founded", DIGEST)
    return Founded(store, fence)
