"""Runs `rampart` in this process; installs a rule that makes a run fail."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rampart_fl.services.console.__main__ import main
from rampart_fl.shared.families import plugins
from rampart_fl.shared.robust.rules import rules
from tests.conftest import ForgetMembers

QUITTER = """
import torch
from rampart_fl.shared.robust.base import Report, Rule, State

class Quitter(Rule):
    def apply(self, rows, state, context):
        if state.tensors:
            raise RuntimeError("one round is enough")
        mean = torch.cat([chunk_MC.mean(0) for _, _, chunk_MC in rows.chunks()])
        return mean, State({"seen": torch.ones(1)}), Report(self.name, rows.ids)
"""


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


@pytest.fixture
def quitter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_members: ForgetMembers
) -> Iterator[str]:
    """An installed rule whose error ends a run in the second round, also in other processes."""
    forget_members(rules)
    folder = tmp_path / "packages"
    metadata = folder / "quitters-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "quitters.py").write_text(QUITTER)
    (metadata / "METADATA").write_text("Name: quitters\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[rampart_fl.rules]\nquitter = quitters:Quitter\n")
    monkeypatch.syspath_prepend(str(folder))
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
    plugins.installed.cache_clear()
    yield "quitter"
    plugins.installed.cache_clear()
    sys.modules.pop("quitters", None)
