"""`rampart` as a function that returns its output and its exit code."""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rampart_fl.services.console.__main__ import main


@dataclass(frozen=True)
class Said:
    """The result of a command: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def rampart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Runs `rampart` with these arguments in this process."""

    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["rampart", *arguments])
        before, code = signal.getsignal(signal.SIGTERM), 0
        capsys.readouterr()
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            signal.signal(signal.SIGTERM, before)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run
