"""Ranks that follow rank 0 store the same models and states as one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.shared.robust import shards, view
from rampart_fl.shared.runtime import threads
from tests.services.aggregator.worker import rank_process
from tests.services.aggregator.worker.test_round_engine import models

ROOT = Path(__file__).parents[4]


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("size", "filed"),
    [
        (2, False),
        *(pytest.param(*given, marks=pytest.mark.long) for given in ((4, False), (2, True))),
    ],
)
def test_the_blobs_do_not_depend_on_the_number_of_ranks(
    size: int, filed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "GRAIN", rank_process.GRAIN)
    monkeypatch.setattr(view, "WINDOW", 1)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(size), "-m", rank_process.__name__, str(tmp_path / "ranks")]
    command += ["in files"] if filed else []
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
    for name, experiment in rank_process.experiments().items():
        if filed and name in rank_process.HELD:
            continue
        with threads.use(1):  # As many as each rank has.
            models(experiment, tmp_path / "one" / name, torch.device("cpu"))
        one, several = (set(Blobs(tmp_path / kind / name).digests()) for kind in ("one", "ranks"))
        assert one == several, name
