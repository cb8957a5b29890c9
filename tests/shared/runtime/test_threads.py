"""Threads sleep while they wait, and small training steps get only one thread."""

import os
import subprocess
import sys

import pytest
import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime import cpus
from rampart_fl.shared.runtime.threads import training_threads, use
from rampart_fl.shared.simulation import Simulation

WATCH = """
import importlib, os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch loads,", os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)  # Nothing else is asked, and torch takes seconds to load.

sys.meta_path.insert(0, Watch())
importlib.import_module({module!r})
importlib.import_module("torch")
"""


@pytest.mark.processes
@pytest.mark.parametrize("policy", [None, "active"])
@pytest.mark.parametrize(
    "module",
    [
        "rampart_fl",  # alone: its names are lazy, so `import rampart_fl, torch` loads nothing else
        "rampart_fl.services.aggregator.worker.worker",
        "rampart_fl.services.aggregator.__main__",
        "rampart_fl.services.attacker.__main__",
        "rampart_fl.services.client_agent.__main__",
        "rampart_fl.services.console.app",
        "rampart_fl.shared.simulation.federation",
    ],
)
def test_omp_wait_policy_is_set_before_torch_is_imported(module: str, policy: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    done = subprocess.run(
        [sys.executable, "-c", WATCH.format(module=module)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"torch loads, {policy or 'passive'}\n"


def test_small_steps_get_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "available", lambda: 6.5)
    small = Experiment.load("digits-sign-flip")
    large = Experiment.from_tables({**small.tables(), "model": {"name": "mlp", "hidden": [2048]}})
    for size, threads in ((8, 6), (3, 3)):
        with use(size):
            assert training_threads(parameters=10**4, samples=200) == 1
            assert training_threads(parameters=10**6, samples=200) == threads
            assert Simulation.of(small).threads == 1
            assert Simulation.of(large).threads == threads


def test_thread_count_is_restored_after_an_exception() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), use(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
