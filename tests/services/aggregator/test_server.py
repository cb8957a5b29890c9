"""Starting an aggregator: the error says why it cannot listen."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.server import serve
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state import redis_connection
from rampart_fl.shared.errors import ConfigurationError

pytestmark = pytest.mark.anyio


def settings(folder: Path, **given: Any) -> Settings:
    """The settings of an api without a Redis."""
    return Settings(
        role="api",
        operator_token="operators-own-token",
        redis_url="redis://127.0.0.1:1/0",
        blobs=str(folder),
        **given,
    )


async def test_certificates_that_are_not_there_are_named(tmp_path: Path) -> None:
    given = settings(tmp_path, tls_certificate=__file__, tls_key="away.pem")
    with pytest.raises(ConfigurationError, match=r"RAMPART_TLS_KEY names 'away.pem'"):
        await serve(given)


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=f"cannot listen at 127.0.0.1, port {port}: see RAMPART_HOST"
        ):
            await serve(settings(tmp_path, port=port))


async def test_metrics_have_a_port_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_connection, "RETRIES", 0)
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    until = asyncio.Event()
    given = settings(tmp_path, port=ports[0], metrics_port=ports[1])
    serving = asyncio.create_task(serve(given, until))
    public, own = (f"http://127.0.0.1:{port}" for port in ports)
    for port in ports:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                assert not serving.done()
                await asyncio.sleep(0.01)
            else:
                writer.close()
                break
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


async def test_a_port_for_metrics_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}: see .* RAMPART_METRICS_PORT"):
            await serve(settings(tmp_path, port=0, metrics_port=port))
