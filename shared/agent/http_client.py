"""An httpx client that raises an httpx error for every lost connection, so that callers retry."""

import re
import ssl
from functools import cache
from importlib.metadata import version
from typing import Any

import httpx

from rampart_fl.shared.errors import ConfigurationError

SOFTWARE = f"rampart-fl/{version('rampart-fl')}"
"""The `User-Agent` header of clients' requests."""
TOKEN = re.compile(r"[!-~]([ -~]*[!-~])?")
"""The tokens that a header can carry: printable ASCII, without spaces at either end."""


@cache
def _system() -> ssl.SSLContext:
    """The system's certificate authorities, read once because a process may host many clients."""
    return httpx.create_ssl_context()


def tls_context(ca: str | None) -> ssl.SSLContext:
    """The TLS context; it trusts the CA bundle, or the system's authorities if `ca` is None.

    Raises:
        ConfigurationError: the bundle cannot be read.
    """
    if ca is None:
        return _system()
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigurationError(f"CA bundle {ca!r}: {error.strerror or error}") from error


def bearer(token: str, whose: str) -> str:
    """The Authorization header's value for a token; error messages never contain the token.

    >>> bearer("secret", "the operator token")
    'Bearer secret'

    Raises:
        ConfigurationError: the token is empty, or contains a character that is not allowed, such as
            a line end.
    """
    if not TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{whose} is empty, or contains characters that are not allowed in a token"
        )
    return f"Bearer {token}"


class HttpClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` that also reports a connection closed by uvloop as an httpx error."""

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Sends a request in the same way as `httpx.AsyncClient`.

        Raises:
            httpx.TransportError: the connection cannot be made, or is lost.
        """
        try:
            return await super().send(request, **options)
        except AttributeError as error:
            # anyio's call to getpeername fails if uvloop has just closed the connection.
            if "getpeername" not in str(error):
                raise
            raise httpx.ReadError("the connection was lost while it was being made") from error
