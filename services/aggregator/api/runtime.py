"""The objects that the requests of a process share; importing this module opens no connection."""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor

from rampart_fl.services.aggregator.api.event_hub import ANYONE, EventHub
from rampart_fl.services.aggregator.api.identities import Identities
from rampart_fl.services.aggregator.api.operator_tokens import OperatorTokens
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.upload_permits import UploadPermits
from rampart_fl.services.aggregator.metrics import ProcessMetrics
from rampart_fl.services.aggregator.settings import TAP_ENABLED, Settings
from rampart_fl.services.aggregator.state.keys import SCHEMA
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import ConfigurationError, Unavailable
from rampart_fl.shared.protocol.refusals import RunNotFound
from rampart_fl.shared.runtime.tokens import token_hash

log = logging.getLogger(__name__)
NOT_DURABLE = (
    "Redis does not report the settings `appendonly yes` and `appendfsync always`: a crash of "
    "Redis may lose acknowledged updates"
)
OPEN = 16
"""A process keeps the `RunParts` of at most this number of runs. If there are more runs, the
process drops the `RunParts` of the least recently used run."""
CONVERSION = 20.0
"""Maximum time in seconds that a request waits for a worker to convert state with an older
schema."""
RETRY = 1.0
"""Seconds between two attempts to reach Redis while Redis does not answer."""


class Runtime:
    """The objects that all requests of a process share.

    Args:
        settings: the deployment's settings.
    """

    def __init__(self, settings: Settings) -> None:
        password, watchers = settings.redis_password, settings.sentinel_password
        self.settings = settings
        self.stores = Stores.connect(
            settings.redis_url,
            password.get_secret_value() if password else None,
            settings.namespace,
            watchers.get_secret_value() if watchers else None,
            settings.redis_replicas,
        )
        # Each federation needs a separate folder, because a worker deletes every blob that no run
        # of its federation refers to.
        self.blobs = RunBlobs(
            f"{settings.blobs.rstrip('/')}/{settings.namespace}",
            settings.blob_cache / settings.namespace,
            settings.blob_cache_gib * 2**30,
        )
        self.disk = ThreadPoolExecutor(8, thread_name_prefix="disk")
        self.hub = EventHub(self.stores)
        self.identities = Identities(self.stores.clients, self.hub)
        self.metrics = ProcessMetrics(self.blobs.folder)
        self.upload_permits = UploadPermits(settings.uploads, self.metrics)
        # Requests for customized models have their own permits. Clients need no ticket for these
        # requests, so they could otherwise use up the permits for updates.
        self.customization_permits = UploadPermits(max(1, settings.uploads // 8), self.metrics)
        owner = token_hash(settings.operator_token.get_secret_value())
        self.operators = OperatorTokens(owner, self.stores.operators)
        self.streams = Counter[str]()
        """How many event streams each operator has open."""
        self.warnings: list[str] = []
        self.tap_hash = (
            token_hash(settings.test_tap.get_secret_value()) if settings.test_tap else ""
        )
        if settings.test_tap:
            log.critical(TAP_ENABLED)
        self._runs: OrderedDict[str, RunParts] = OrderedDict()
        self._runs_as_of = -1
        self._converted_as_of = -1

    async def run(self, run: str) -> RunParts:
        """The objects shared by the requests about one run.

        Raises:
            RunNotFound: there is no such run.
        """
        if self._runs_as_of != self.hub.deletions:
            self._runs.clear()
            self._runs_as_of = self.hub.deletions
        parts = self._runs.get(run)
        if parts is None:
            as_of = self.hub.deletions
            if await self.stores.runs.entry(run) is None:
                raise RunNotFound(f"there is no run {run}")
            stores, blobs = self.stores.of_run(run), self.blobs.of_run(run)
            parts = RunParts(run, stores, blobs, self.disk, self.stores.runs)
            if self.hub.listening and as_of == self.hub.deletions:
                self._runs[run] = parts
                if len(self._runs) > OPEN:
                    self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(run)
        return parts

    async def require_ready(self) -> None:
        """Raises `Unavailable` until a worker has taken over the federation.

        A process can be ready before a worker has converted an older schema. Otherwise, a rolling
        update would never end: the old processes are stopped only when the new processes are ready,
        and a new worker converts the state only after the old processes have stopped.
        """
        if await self._schema() is None:
            raise Unavailable("no worker has taken over this federation yet")

    async def await_conversion(self) -> None:
        """Waits until the stored state, if there is any, has the schema of this version.

        Raises:
            Unavailable: no worker converted the state in time, or no worker can convert it.
        """
        if self._converted_as_of == self.hub.takeovers:
            return
        give_up = time.monotonic() + CONVERSION
        with self.hub.listen(ANYONE) as wait:
            while True:
                as_of, schema = self.hub.takeovers, await self._schema()
                if schema in (None, SCHEMA):
                    break
                if not await wait(max(0.0, give_up - time.monotonic())):
                    raise Unavailable(
                        f"Redis holds schema {schema}; this version needs schema {SCHEMA}, and no "
                        "worker has converted the state yet"
                    )
        if schema is not None and self.hub.listening:
            self._converted_as_of = as_of

    async def _schema(self) -> str | None:
        try:
            return await self.stores.runs.schema()
        except ConfigurationError as error:
            raise Unavailable(str(error)) from None

    async def watch_durability(self, every: float = 60.0) -> None:
        """Regularly checks whether a crash of Redis can lose acknowledged updates; if so, warns."""
        while True:
            try:
                durable = await self.stores.redis.durable()
            except Unavailable:
                await asyncio.sleep(RETRY)
                continue
            if not durable and not self.warnings:
                log.warning(NOT_DURABLE)
            self.warnings = [] if durable else [NOT_DURABLE]
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Closes the connections and stops the threads."""
        await self.stores.aclose()
        self.disk.shutdown(wait=True)
