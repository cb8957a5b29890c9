"""`python -m rampart_fl.services.aggregator.probe [PATH]`: a health check without curl.

Requests `PATH` from the aggregator in this container, and exits with 0 if the status is 200. `PATH`
is `/healthz`, which is the default, or `/readyz`. `/healthz` checks that the event loop is running.
`/readyz` checks that Redis answers, that blobs can be written, and that a worker has taken over.
The probe needs only the standard library.
"""

import os
import ssl
import sys
import urllib.request

PORT = 8440
"""The port on which the aggregator listens unless RAMPART_PORT names another port."""


def ask(path: str, seconds: float = 4.5) -> str | None:
    """The reason why the aggregator did not answer with status 200; None if the status was 200."""
    tls = bool(os.environ.get("RAMPART_TLS_CERTIFICATE"))
    scheme = "https" if tls else "http"
    url = f"{scheme}://127.0.0.1:{os.environ.get('RAMPART_PORT', PORT)}{path}"
    try:
        urllib.request.urlopen(url, timeout=seconds, context=_trust() if tls else None).close()  # noqa: S310 - http(s) only
    except OSError as error:
        return f"{url}: {error}"
    return None


def _trust() -> ssl.SSLContext:
    """TLS without verification.

    The certificate names the service, not the loopback address, so verification would fail. It is
    safe to skip verification, because the probe sends no secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def main() -> int:
    """Sends the request; on failure, writes the reason to standard error."""
    wrong = ask(sys.argv[1] if len(sys.argv) > 1 else "/healthz")
    if wrong is not None:
        sys.stderr.write(f"{wrong}\n")
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
