"""Each cell runs once, its result is kept, and a killed study resumes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rampart_fl.services.console.studies.reproduction.cells import cells
from rampart_fl.services.console.studies.reproduction.files import parse
from rampart_fl.services.console.studies.reproduction.report import CellResult, outcome, plain
from rampart_fl.services.console.studies.reproduction.runs import Results, run
from rampart_fl.shared.errors import ConfigurationError

TABLE = """
title = "Small"
paper = "fedcap"
measure = "accuracy_local"
axes = { attack = ["lie", "ipm"], method = ["median", "fedcap"] }
fixed = { data = "cifar10" }
smoke = { attack = "lie", method = "fedcap" }
values = { lie = [77.24, 84.95], ipm = [75.05, nan] }
[[settings]]
[settings.change]
rounds = ROUNDS
model = { name = "mlp", hidden = [4] }
data = { dataset = "digits", samples = 20 }
training = { epochs = 1 }
"""
SCRIPT = """
import sys
from pathlib import Path
from rampart_fl.services.console.studies.reproduction.cells import cells
from rampart_fl.services.console.studies.reproduction.files import parse
from rampart_fl.services.console.studies.reproduction.runs import run
run(cells(parse(sys.argv[1]), "full", 1), Path(sys.argv[2]), title="small")
"""


def table(folder: Path, rounds: int = 1, resume: bool = False) -> tuple[list[CellResult], Results]:
    grid = cells(parse(TABLE.replace("ROUNDS", str(rounds))), "full", 1)
    results = run(grid, folder, title="small", resume=resume)
    return [outcome(cell, results) for cell in grid], results


def test_finished_cells_are_kept_and_not_run_again(tmp_path: Path) -> None:
    first, _ = table(tmp_path)
    files = sorted((tmp_path / "cells").iterdir())
    assert len(files) == 4 and all(file.stat().st_size < 4096 for file in files)
    assert not list((tmp_path / "runs").iterdir())
    with pytest.raises(ConfigurationError, match="holds runs: use --resume to continue"):
        table(tmp_path)
    written = [file.stat().st_mtime_ns for file in files]
    files[0].write_text(files[0].read_text().replace('"seed": 0', '"seed": 99'))
    again, results = table(tmp_path, resume=True)
    assert [file.stat().st_mtime_ns for file in files[1:]] == written[1:]
    assert 99 in [figures["seed"] for figures in results.values()], "the kept figures were used"
    assert plain(again) == plain(first)


def test_failed_run_is_reported_as_missing_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMPART_DATA_DIR", str(tmp_path / "empty"))
    missing = TABLE.replace("ROUNDS", "1").replace('"digits"', '"wisdm_raw"')
    text = missing.replace("samples = 20", 'samples = 20, partition = "iid"')
    grid = cells(parse(text), "full", 1, {"attack": ["lie"], "method": ["median"]})
    verdicts = outcome(grid[0], run(grid, tmp_path, title="small"))
    assert verdicts.mean is None and "wisdm_raw" in str(verdicts.missing)
    assert not (tmp_path / "cells").exists()


@pytest.mark.processes
@pytest.mark.long
def test_killed_study_resumes_to_the_same_table(tmp_path: Path) -> None:
    rounds, folder = 25, tmp_path / "killed"
    text = TABLE.replace("ROUNDS", str(rounds))
    started = subprocess.Popen([sys.executable, "-c", SCRIPT, text, str(folder)], env=os.environ)
    while not list(folder.glob("runs/*/checkpoint.safetensors")):
        assert started.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)  # The file is polled until the first checkpoint.
    started.send_signal(signal.SIGKILL)
    started.wait()
    left = list(folder.glob("runs/*/checkpoint.safetensors"))
    assert left, "it was killed within a run"
    resumed, results = table(folder, rounds, resume=True)
    whole, others = table(tmp_path / "whole", rounds)
    assert plain(resumed) == plain(whole)
    for file, figures in results.items():
        timed = {"seconds": 0.0}
        assert {**figures, **timed} == {**others[file], **timed}
