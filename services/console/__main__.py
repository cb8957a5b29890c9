"""`rampart`: run federations on this machine, and watch and control running federations.

The import of the program is slow, and users may press Ctrl-C during the import. This module
therefore sets up the handling of interrupts before the import.
"""

import signal
import sys
from types import FrameType


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def main() -> None:
    """Runs the command of the command line; exits with code 130 if it is interrupted."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        from rampart_fl.services.console.app import run_command

        run_command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
