"""The machine probe: it reports no more than its container allows."""

from pathlib import Path

import pytest

from rampart_fl.shared.learning.training import machine
from rampart_fl.shared.runtime import cpus


def test_scarcer_of_cores_and_memory_limits_resources() -> None:
    assert machine.resources(cores=4, memory=64, accelerator=False) == 4
    assert machine.resources(cores=64, memory=4, accelerator=False) == 2
    assert machine.resources(cores=1, memory=1, accelerator=True) == float("inf")


def probe_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **limits: str) -> float:
    for name, text in limits.items():
        (folder / name.replace("_", ".")).write_text(text)
    monkeypatch.setattr(cpus, "LIMITS", folder)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    machine.probe.cache_clear()
    result = machine.probe()
    machine.probe.cache_clear()
    return result


def test_probe_respects_container_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_in(tmp_path, monkeypatch, cpu_max="50000 100000\n") == 0.5
    assert probe_in(tmp_path, monkeypatch, memory_max=f"{2**29}\n") == 0.25


def test_probe_without_container_limits_measures_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = probe_in(tmp_path, monkeypatch)
    assert free > 0
    assert probe_in(tmp_path, monkeypatch, cpu_max="max 100000\n", memory_max="max\n") == free
