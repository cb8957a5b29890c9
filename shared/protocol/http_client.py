"""httpx's client, with every loss of a connection as an httpx error, so that a retry sees it."""

import ssl
from typing import Any

import httpx

from shared.errors import ConfigurationError


def trusted(ca: str | None) -> ssl.SSLContext | bool:
    """What an aggregator's certificate is held against: a CA bundle, or the system's authorities.

    Raises:
        ConfigurationError: there is no such bundle.
    """
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigurationError(f"CA bundle {ca!r}: {error.strerror or error}") from error


class HttpClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` without one failure that httpx lets through as something else."""

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Sends a request, as httpx does.

        Raises:
            httpx.TransportError: the connection cannot be made, or is lost.
        """
        try:
            return await super().send(request, **options)
        except AttributeError as error:
            # anyio asks a connection that uvloop has just closed for its peer's name.
            if "getpeername" not in str(error):
                raise
            raise httpx.ReadError("the connection was lost when it was made") from error
