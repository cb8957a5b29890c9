"""httpx's client, with every loss of a connection as an httpx error, so that a retry sees it."""

import re
import ssl
from typing import Any

import httpx

from rampart_fl.shared.errors import ConfigurationError

TOKEN = re.compile(r"[!-~]([ -~]*[!-~])?")
"""What a header can carry and a token can have."""


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


def bearer(token: str, whose: str) -> str:
    """The header's value for a token, which no error repeats.

    >>> bearer("secret", "the operator token")
    'Bearer secret'

    Raises:
        ConfigurationError: it has what no token has, such as the end of a line.
    """
    if not TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{whose} has letters that no token has, or blanks or line ends around it, or is empty"
        )
    return f"Bearer {token}"


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
