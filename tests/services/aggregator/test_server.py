"""Starting an aggregator: errors, the port for metrics, and trusted proxies."""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from rampart_fl.services.aggregator.server import serve
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state import redis_connection
from rampart_fl.services.aggregator.state.keys import prefix_of
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.tokens import mint, token_hash

pytestmark = pytest.mark.anyio


def settings(folder: Path, redis_url: str = "redis://127.0.0.1:1/0", **fields: Any) -> Settings:
    """The settings of an API process, by default without Redis."""
    return Settings(
        role="api",
        operator_token="operators-own-token",
        redis_url=redis_url,
        blobs=str(folder),
        **fields,
    )


async def listening(port: int, serving: "asyncio.Task[None]") -> None:
    """Waits until an aggregator listens at a port."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            assert not serving.done()
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


async def test_missing_certificate_file_is_named_in_the_error(tmp_path: Path) -> None:
    server_settings = settings(tmp_path, tls_certificate=__file__, tls_key="away.pem")
    with pytest.raises(ConfigurationError, match=r"RAMPART_TLS_KEY names 'away.pem'"):
        await serve(server_settings)


async def test_port_in_use_is_named_in_the_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=f"cannot listen at 127.0.0.1, port {port}: see RAMPART_HOST"
        ):
            await serve(settings(tmp_path, port=port))


@pytest.mark.slow
async def test_metrics_are_served_only_on_their_own_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_connection, "RETRIES", 0)
    ports = [free_port(), free_port()]
    until = asyncio.Event()
    server_settings = settings(tmp_path, port=ports[0], metrics_port=ports[1])
    serving = asyncio.create_task(serve(server_settings, until))
    public, own = (f"http://127.0.0.1:{port}" for port in ports)
    for port in ports:
        await listening(port, serving)
    async with httpx.AsyncClient() as client:
        measured = await client.get(f"{own}/metrics")
        assert measured.status_code == 200
        assert "rampart_redis_up 0.0" in measured.text
        assert (await client.get(f"{public}/healthz")).status_code == 200
        assert (await client.get(f"{public}/metrics")).status_code == 404
        for path in ("/v1/federation", "/readyz", "/", "/openapi.json"):
            assert (await client.get(own + path)).status_code == 404, path
    until.set()
    await serving


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize(
    ("trusted", "requests"),
    [
        (None, [("127.0.0.1", "203.0.113.1", "127.0.0.1")]),
        (
            "127.8.0.0/16",
            [
                ("127.8.0.1", "203.0.113.1", "203.0.113.1"),
                ("127.8.9.9", "203.0.113.1", "203.0.113.1"),
                # A client can invent addresses, but the proxy appends the client's own address.
                ("127.8.0.1", "198.51.100.7, 203.0.113.1", "203.0.113.1"),
                ("127.9.0.1", "203.0.113.1", "127.9.0.1"),
            ],
        ),
    ],
)
async def test_joins_are_counted_by_the_address_that_a_trusted_proxy_reports(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    redis_url: str,
    trusted: str | None,
    requests: list[tuple[str, str, str]],
) -> None:
    """Each request comes from an address, and names others; the last address is counted."""
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    if trusted is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    port, until = free_port(), asyncio.Event()
    counters = f"{prefix_of('forwarded')}attempts:join:"
    server_settings = settings(tmp_path, redis_url, port=port, namespace="forwarded")
    serving = asyncio.create_task(serve(server_settings, until))
    await listening(port, serving)
    database = redis.Redis.from_url(redis_url)

    async def counted(proxy: str, forwarded: str) -> str:
        """The address for which the API counts an attempt to join that a proxy forwards."""
        transport = httpx.AsyncHTTPTransport(local_address=proxy)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.post(
                f"http://127.0.0.1:{port}/v1/clients",
                json={"token_hash": token_hash(mint())},
                headers={"Authorization": f"Bearer {mint()}", "X-Forwarded-For": forwarded},
            )
        (key,) = database.keys(f"{counters}*")
        assert isinstance(key, bytes)
        database.delete(key)
        address, _, _ = key.decode().removeprefix(counters).rpartition(":")
        return address

    try:
        for proxy, forwarded, expected in requests:
            assert await counted(proxy, forwarded) == expected
    finally:
        database.close()
        until.set()
        await serving


async def test_metrics_port_in_use_is_named_in_the_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}: see .* RAMPART_METRICS_PORT"):
            await serve(settings(tmp_path, port=0, metrics_port=port))
