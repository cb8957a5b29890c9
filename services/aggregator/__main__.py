"""`python -m rampart_fl.services.aggregator`: runs an aggregator process.

Every setting can be given as a flag or as the variable RAMPART_<SETTING>.
"""

import sys

from rampart_fl.services.aggregator.server import serve
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.runtime.process import run_service


def main() -> int:
    """Runs the process until SIGTERM; the process completes requests in flight before it exits."""
    return run_service("aggregator", Settings, serve, own_signals=True)


if __name__ == "__main__":
    sys.exit(main())
