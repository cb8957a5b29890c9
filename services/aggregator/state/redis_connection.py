"""Connects to Redis: to one server, or to the server that Sentinels name as the primary."""

from typing import Any

import redis.asyncio
from redis.asyncio.connection import BlockingConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialBackoff

from rampart_fl.shared.errors import ConfigurationError

SENTINEL = "+sentinel://"
"""A Redis URL that contains this text names Sentinels."""
RETRIES = 5
"""Maximum number of repetitions of a failed command, and of a failed attempt to connect.

If a command loses its connection, each repetition tries for 2.5 seconds to connect. The command
therefore succeeds if Redis is back within 15 seconds. A command that starts without a connection is
not repeated: if Redis is down, the command fails after 2.5 seconds."""
CONNECTIONS = 64
"""Maximum number of connections to Redis per process."""
PATIENCE = 30.0
"""Seconds without a response after which Redis is considered unavailable."""
CONNECTING = 5
"""Timeout in seconds for opening a connection to Redis or to a Sentinel."""


class PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """A pool of connections to the primary; callers wait if all connections are in use."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Closes the idle connections to the primary.

        If `inuse_connections` is true, this method also closes the connections that are in use, and
        the connections to the Sentinels.
        """
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                await sentinel.aclose()


def connect(
    url: str, password: str | None, sentinel_password: str | None = None
) -> "redis.asyncio.Redis":
    """A Redis client with timeouts, a small connection pool, and retries if a connection is lost.

    Args:
        url: for one server, a URL that begins with `redis://`, `rediss://` or `unix://`. To find
            the primary through Sentinels, use `redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE`
            (with TLS, `rediss+sentinel://...`). NAME is the primary's name in the Sentinels'
            configuration.
        password: the Redis password; None if Redis needs no password.
        sentinel_password: password of the Sentinels; None if the Sentinels need no password.

    Raises:
        ConfigurationError: the URL names no Sentinel or no primary.
    """
    options: dict[str, Any] = {
        # When a round opens, all long polls wake at once and send commands, so the number of
        # connections must be limited.
        "max_connections": CONNECTIONS,
        "timeout": PATIENCE,
        "password": password,
        "decode_responses": True,
        # If socket_timeout is set, redis-py sends commands through asyncio.wait_for. Before Python
        # 3.12, wait_for loses a cancellation that arrives together with the response. The client
        # therefore has no socket_timeout; `converted_errors` sets the timeout instead.
        "socket_timeout": None,
        "socket_connect_timeout": CONNECTING,
        "health_check_interval": 30,
        "retry": Retry(ExponentialBackoff(cap=1, base=0.05), RETRIES),
        "retry_on_error": [ConnectionError, TimeoutError],
    }
    if SENTINEL not in url:
        return redis.asyncio.Redis.from_pool(BlockingConnectionPool.from_url(url, **options))
    name, hosts, url_options = read_sentinel_url(url)
    encrypted = {key: value for key, value in url_options.items() if key.startswith("ssl")}
    if url.startswith("rediss"):
        encrypted["ssl"] = True
    watchers: dict[str, Any] = {
        **encrypted,
        "password": sentinel_password,
        "socket_connect_timeout": CONNECTING,
        "socket_timeout": CONNECTING,
    }
    database = {"db": url_options["db"]} if "db" in url_options else {}
    sentinel = Sentinel(hosts, sentinel_kwargs=watchers)  # type: ignore[no-untyped-call]  # redis-py has no annotation
    options |= {**encrypted, **database}
    pool = PrimaryPool(name, sentinel, **options)  # type: ignore[no-untyped-call]  # redis-py has no annotation
    return redis.asyncio.Redis.from_pool(pool)


def read_sentinel_url(url: str) -> tuple[str, list[tuple[str, int]], dict[str, Any]]:
    """Parses a URL; returns the primary's name, the Sentinels' addresses, and further options.

    Raises:
        ConfigurationError: the URL names no Sentinel or no primary.

    >>> read_sentinel_url("redis+sentinel://one:26379,two/rampart/3")
    ('rampart', [('one', 26379), ('two', 26379)], {'db': 3})
    """
    scheme, _, rest = url.partition(SENTINEL)
    path, _, query = rest.partition("?")
    hosts, _, path = path.partition("/")
    name, _, database = path.partition("/")
    parts = [host.rpartition(":") for host in hosts.split(",")]
    addresses = [(host or port, int(port) if host else 26379) for host, _, port in parts]
    if not name or not all(host for host, _ in addresses):
        raise ConfigurationError(
            f"the Redis URL must be {scheme}{SENTINEL}HOST:PORT,HOST:PORT/NAME/DATABASE, "
            "where NAME is the name by which the Sentinels know the primary"
        )
    options = parse_url(f"{scheme}://{addresses[0][0]}/{database}?{query}")
    kept = {k: v for k, v in options.items() if k not in ("host", "port", "connection_class")}
    return name, addresses, kept
