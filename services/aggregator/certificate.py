"""Reloads the API's TLS certificate when its files change, so that a renewal needs no restart."""

import asyncio
import logging
import ssl
from pathlib import Path

log = logging.getLogger(__name__)
EVERY = 60.0
"""Interval in seconds between checks for changes in the certificate's files."""


async def renew(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Reloads the certificate and the key whenever their files change.

    Connections that clients open later use the new certificate.

    If the changed files cannot be used, the previous certificate stays in use. `renew` then tries
    to load the files at every check until it succeeds.
    """
    loaded = _state(certificate, key)
    while True:
        await asyncio.sleep(EVERY)
        current = _state(certificate, key)
        if current in (loaded, None):
            continue
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the changed certificate cannot be used: %s", error)
        else:
            loaded = current
            log.info("the certificate was reloaded")


def _state(*paths: Path) -> tuple[tuple[int, int], ...] | None:
    """Each file's modification time and inode, to detect changes; None if a file is missing."""
    try:
        return tuple((status.st_mtime_ns, status.st_ino) for status in map(Path.stat, paths))
    except OSError:
        return None
