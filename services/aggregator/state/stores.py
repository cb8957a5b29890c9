"""All stores of one namespace, with a shared connection pool for Redis."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from rampart_fl.services.aggregator.state.attempt_counter import AttemptCounter
from rampart_fl.services.aggregator.state.audit_log import AuditLog
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.check_store import CheckStore
from rampart_fl.services.aggregator.state.client_store import ClientStore
from rampart_fl.services.aggregator.state.customization_store import CustomizationStore
from rampart_fl.services.aggregator.state.event_log import EventLog
from rampart_fl.services.aggregator.state.eviction_store import EvictionStore
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenStore
from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys, prefix_of
from rampart_fl.services.aggregator.state.lease_store import LeaseStore
from rampart_fl.services.aggregator.state.member_store import MemberStore
from rampart_fl.services.aggregator.state.operator_store import OperatorStore
from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.services.aggregator.state.redis_connection import connect
from rampart_fl.services.aggregator.state.round_store import RoundStore
from rampart_fl.services.aggregator.state.run_registry import RunRegistry
from rampart_fl.services.aggregator.state.run_store import RunStore
from rampart_fl.services.aggregator.state.ticket_store import TicketStore
from rampart_fl.services.aggregator.state.upload_store import UploadStore

OPEN = 16
"""Maximum number of runs whose stores a process keeps; the process drops the stores of the least
recently used run first."""


@dataclass(frozen=True)
class RunStores:
    """The stores of one run; each store owns the keys and scripts of one subject."""

    run: str
    keys: RunKeys
    state: RunStore
    members: MemberStore
    rounds: RoundStore
    tickets: TicketStore
    uploads: UploadStore
    evictions: EvictionStore
    customizations: CustomizationStore
    events: EventLog

    def records(self, blobs: Blobs, **options: Any) -> RecordStore:
        """Creates the run's `RecordStore`, which uses `blobs`; passes `options` to the store."""
        return RecordStore(self.state.redis, self.keys, blobs, **options)

    async def aclose(self) -> None:
        """Cancels pending ticket lookups and uploads."""
        await self.tickets.aclose()
        await self.uploads.aclose()


@dataclass(frozen=True)
class Stores:
    """The stores of a federation, and of its runs."""

    redis: RedisAccess
    keys: FederationKeys
    lease: LeaseStore
    join_tokens: JoinTokenStore
    clients: ClientStore
    attempts: AttemptCounter
    operators: OperatorStore
    audit: AuditLog
    runs: RunRegistry
    checks: CheckStore
    events: EventLog
    _of_runs: OrderedDict[str, RunStores] = field(default_factory=OrderedDict)

    @staticmethod
    def connect(
        url: str,
        password: str | None,
        namespace: str,
        sentinel_password: str | None = None,
        replicas: int = 0,
    ) -> "Stores":
        """Makes the stores of a namespace; a store connects to Redis on first use.

        Args:
            url: URL of Redis.
            password: password of Redis; None if Redis needs no password.
            namespace: first part of all keys; each federation needs a separate namespace.
            sentinel_password: password of the Sentinels; None if the Sentinels need no password.
            replicas: number of replicas that must confirm every write.
        """
        client = connect(url, password, sentinel_password)
        redis, keys = RedisAccess(client, replicas), FederationKeys(prefix_of(namespace))
        audit = AuditLog(redis, keys)
        return Stores(
            redis=redis,
            keys=keys,
            lease=LeaseStore(redis, keys),
            join_tokens=JoinTokenStore(redis, keys, audit),
            clients=ClientStore(redis, keys, audit),
            attempts=AttemptCounter(redis, keys),
            operators=OperatorStore(redis, keys, audit),
            audit=audit,
            runs=RunRegistry(redis, keys, audit),
            checks=CheckStore(redis, keys),
            events=EventLog(redis, keys.events),
        )

    def of_run(self, run: str) -> RunStores:
        """The stores of one run, whether or not the run exists."""
        stores = self._of_runs.get(run)
        if stores is None:
            stores = self._of_runs[run] = self._make(run)
        self._of_runs.move_to_end(run)
        if len(self._of_runs) > OPEN:
            self._of_runs.popitem(last=False)
        return stores

    def _make(self, run: str) -> RunStores:
        redis, federation, audit = self.redis, self.keys, self.audit
        keys = federation.of_run(run)
        return RunStores(
            run=run,
            keys=keys,
            state=RunStore(redis, run, keys, federation, audit),
            members=MemberStore(redis, keys, federation),
            rounds=RoundStore(redis, keys, federation),
            tickets=TicketStore(redis, keys, federation),
            uploads=UploadStore(redis, keys),
            evictions=EvictionStore(redis, run, keys, federation, audit),
            customizations=CustomizationStore(redis, keys, federation),
            events=EventLog(redis, keys.events),
        )

    async def aclose(self) -> None:
        """Cancels pending ticket lookups and uploads, then closes the connections."""
        for stores in self._of_runs.values():
            await stores.aclose()
        await self.redis.client.aclose()
