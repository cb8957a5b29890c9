"""A process uses at most the processors that its container allows."""

import os
from pathlib import Path

import pytest

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.runtime import cpus


@pytest.mark.parametrize(
    ("quota", "available", "threads"),
    [
        ("50000 100000\n", 0.5, 1),
        ("150000 100000\n", 1.5, 1),
        ("350000 100000\n", 3.5, 3),
        ("6400000 100000\n", 4.0, 4),
        ("max 100000\n", 4.0, 4),
        (None, 4.0, 4),
    ],
)
def test_container_cpu_quota_limits_threads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quota: str | None,
    available: float,
    threads: int,
) -> None:
    monkeypatch.setattr(cpus, "LIMITS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert (cpus.available(), cpus.threads()) == (available, threads)
    assert Settings(operator_token="operators-own-token").threads == threads
