"""Starting an aggregator: the error says why it cannot listen."""

import socket
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.server import serve
from rampart_fl.services.aggregator.settings import Settings
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
            ConfigurationError, match=f"RAMPART_HOST=127.0.0.1, RAMPART_PORT={port}"
        ):
            await serve(settings(tmp_path, port=port))
