"""All stores of one namespace, on one connection to Redis."""

from dataclasses import dataclass
from typing import Any

from rampart_fl.services.aggregator.state.attempt_counter import AttemptCounter
from rampart_fl.services.aggregator.state.audit_log import AuditLog
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.client_store import ClientStore
from rampart_fl.services.aggregator.state.customization_store import CustomizationStore
from rampart_fl.services.aggregator.state.event_log import EventLog
from rampart_fl.services.aggregator.state.eviction_store import EvictionStore
from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys, prefix_of
from rampart_fl.services.aggregator.state.lease_store import LeaseStore
from rampart_fl.services.aggregator.state.operator_store import OperatorStore
from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.redis_access import RedisAccess, connect
from rampart_fl.services.aggregator.state.round_store import RoundStore
from rampart_fl.services.aggregator.state.run_store import RunStore
from rampart_fl.services.aggregator.state.ticket_store import TicketStore
from rampart_fl.services.aggregator.state.upload_store import UploadStore


@dataclass(frozen=True)
class Stores:
    """The stores of the federation and of its run; each owns one subject's keys and scripts."""

    redis: RedisAccess

    # What belongs to the federation.
    lease: LeaseStore
    clients: ClientStore
    attempts: AttemptCounter
    operators: OperatorStore
    audit: AuditLog

    # What belongs to the run.
    run: RunStore
    rounds: RoundStore
    tickets: TicketStore
    uploads: UploadStore
    evictions: EvictionStore
    customizations: CustomizationStore
    events: EventLog

    @staticmethod
    def connect(url: str, password: str | None, namespace: str) -> "Stores":
        """Makes the stores of a namespace; they connect to Redis when they are first used.

        Args:
            url: URL of Redis.
            password: password of Redis; None if it has none.
            namespace: first part of all keys; each federation needs a separate namespace.
        """
        redis, prefix = RedisAccess(connect(url, password)), prefix_of(namespace)
        federation, run = FederationKeys(prefix), RunKeys(prefix)
        audit = AuditLog(redis, federation)
        return Stores(
            redis=redis,
            lease=LeaseStore(redis, federation, run),
            clients=ClientStore(redis, federation, run, audit),
            attempts=AttemptCounter(redis, federation),
            operators=OperatorStore(redis, federation, audit),
            audit=audit,
            run=RunStore(redis, run, federation, audit),
            rounds=RoundStore(redis, run, federation),
            tickets=TicketStore(redis, run, federation),
            uploads=UploadStore(redis, run),
            evictions=EvictionStore(redis, run, federation, audit),
            customizations=CustomizationStore(redis, run, federation),
            events=EventLog(redis, run),
        )

    def records(self, blobs: Blobs, **options: Any) -> RecordStore:
        """The store of the run's records, which are in `blobs`; `RecordStore` gets `options`."""
        return RecordStore(self.redis, self.run.keys, blobs, **options)

    async def aclose(self) -> None:
        """Cancels pending questions and uploads, then closes the connection."""
        await self.tickets.aclose()
        await self.uploads.aclose()
        await self.redis.client.aclose()
