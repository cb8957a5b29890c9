"""`rampart` ends without a traceback if a signal arrives while the program is imported."""

import signal
import subprocess
import sys

import pytest

from rampart_fl.services.console.__main__ import main

INTERRUPTED = """
import importlib.abc, os, signal, sys, time

# A shell ignores SIGINT in processes that it starts in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), {number})
            time.sleep(60)  # The signal ends this sleep; without a handler, the test fails.

sys.meta_path.insert(0, Interrupts())
from {module} import main
main()
"""


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_import_ends_with_code_130_and_one_line(number: signal.Signals) -> None:
    script = INTERRUPTED.format(number=int(number), module=main.__module__)
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
