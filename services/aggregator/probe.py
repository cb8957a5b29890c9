"""`python -m rampart_fl.services.aggregator.probe [PATH]`: asks this container's process; 0: a 200.

For health checks where there is no curl; needs the standard library alone. `PATH` is `/healthz`
(the event loop turns) or `/readyz` (Redis, blobs and a federation are there).
"""

import os
import ssl
import sys
import urllib.request

PORT = 8440
"""Where the aggregator listens unless RAMPART_PORT says otherwise."""


def ask(path: str, seconds: float = 3.0) -> str | None:
    """Why the process in this container does not answer 200; None if it does."""
    tls = bool(os.environ.get("RAMPART_TLS_CERTIFICATE"))
    scheme = "https" if tls else "http"
    url = f"{scheme}://127.0.0.1:{os.environ.get('RAMPART_PORT', PORT)}{path}"
    # The certificate names the service and not this address, and no secret is sent.
    trust = ssl._create_unverified_context() if tls else None  # noqa: S323 - to loopback, no secret
    try:
        urllib.request.urlopen(url, timeout=seconds, context=trust).close()  # noqa: S310 - http(s) only
    except OSError as error:
        return f"{url}: {error}"
    return None


def main() -> int:
    """Asks, and says what is wrong."""
    wrong = ask(sys.argv[1] if len(sys.argv) > 1 else "/healthz")
    if wrong is not None:
        sys.stderr.write(f"{wrong}\n")
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
