"""RAMPART_POOL_MEMORY: rows in files change no result, and a stage that needs memory says so."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.runtime import disk_block
from tests.integration import in_process_federation
from tests.integration.in_process_federation import Hosted, Scripted, experiment, until
from tests.integration.multi_process_federation import outcome

NAMES = ["ada", "bob", "cleo", "dan"]
SERVER: dict[str, Any] = {
    "rule": ["nnm", "trimmed_mean"],
    "f": 1,
    "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1},
    "detectors": ["response", "challenge"],
}
TINY = 1
"""A limit that no row fits into."""


def test_run_that_needs_more_memory_than_the_limit_fails_with_the_reason(
    host: Callable[..., Hosted],
) -> None:
    server = {"detectors": ["fedredefense"]}
    hosted = host(experiment(3, 1, server=server), pool_memory=TINY)
    until(lambda: hosted.run.info().state == "failed")
    assert "but RAMPART_POOL_MEMORY is 1 B" in hosted.run.info().reason
    with pytest.raises(RampartError, match="but RAMPART_POOL_MEMORY is 1 B"):
        hosted.operator.submit(experiment(3, 1, seed=2, server=server), "again")


@pytest.mark.parametrize(
    "server",
    [
        SERVER,
        {**SERVER, "calibrate": False},
        {"rule": "foolsgold", "detectors": [{"name": "cross_round", "upper": 0.9}]},
    ],
)
def test_rounds_with_rows_in_files_publish_the_same_models(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, server: dict[str, Any]
) -> None:
    files: list[int] = []

    class NotedFile(disk_block.MappedFile):
        def __init__(self, rows: int, dim: int, folder: Path) -> None:
            super().__init__(rows, dim, folder)
            files.append(rows)

    monkeypatch.setattr(disk_block, "MappedFile", NotedFile)
    definition = experiment(4, 3, fraction=0.8, server=server)
    results, made = list[list[dict[str, object]]](), list[int]()
    for name, limit in (("memory", None), ("files", TINY)):
        folder = tmp_path / name
        folder.mkdir()
        with ExitStack() as started:
            hosted = started.enter_context(
                in_process_federation.host(definition, folder, redis_url, pool_memory=limit)
            )
            hosted.scripted(NAMES[:3])
            hosted.take_part("dan", Scripted("dan", scale=10.0))
            hosted.wait()
            results.append(outcome(hosted.run.rounds()))
        made.append(len(files))
    assert made[0] == 0 and made[1] >= 2
    assert results[0] == results[1]
