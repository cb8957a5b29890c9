"""Every stage that streams gives the same bits on one process and on several that divide the rows.

Each rank holds all rows over some coordinates. Shards are shrunk to a few coordinates.
"""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Rows, aggregate, linalg, shards, view
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from tests.contracts import sharded
from tests.contracts.test_streaming import STAGES as BUILT

ROOT = Path(__file__).parents[2]
STAGES = {name: family.get(name) for family in (rules, preaggregators) for name in family.names()}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "GRAIN", sharded.GRAIN)


def ranks(size: int, folder: Path, kernels: str) -> list[dict[str, Any]]:
    """The results of every rank of a group."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "RAMPART_KERNELS": kernels,
    }
    command = [sys.executable, "-m", "tests.contracts.sharded"]
    started = [
        subprocess.Popen([*command, str(rank), str(size), str(folder)], env=environment)
        for rank in range(size)
    ]
    assert [process.wait() for process in started] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("size", "kernels"),
    [
        (2, "auto"),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((1, "auto"), (4, "auto"))),
        pytest.param(2, "torch", marks=pytest.mark.long),
    ],
)
def test_results_are_bitwise_independent_of_the_number_of_ranks(
    size: int, kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ranks(size, tmp_path, kernels)
    monkeypatch.setenv("RAMPART_KERNELS", kernels)
    for name, (kind, stages) in sharded.cases().items():
        held = [part[name] for part in parts]
        stage = STAGES[name.partition(",")[0]]
        if not stage.streams:
            assert all("works on whole rows" in str(report) for report in held), name
            continue
        whole = sharded.result(kind, stages, 0, 1, None)
        if isinstance(whole, str):
            assert held == [whole] * size, name
        else:
            assert all(isinstance(part, Tensor) for part in held), (name, held)
            assert torch.equal(torch.cat(held), whole), name
    for name, whole in sharded.passes(0, 1, None).items():
        assert all(torch.equal(part[name], whole) for part in parts), name
    for name, plan in sharded.plans().items():
        reports = [part[f"rounds of {name}"] for part in parts]
        if plan.undivided():
            assert reports == [f"{plan.undivided()} works on whole rows"] * size
            continue
        alone = sharded.rounds(plan, 0, 1, None)
        assert isinstance(alone, sharded.Held), alone
        for key, value in alone.common.items():
            for one in reports:
                result = one["common"][key]
                same = result == value if isinstance(value, str) else torch.equal(result, value)
                assert same, (name, key, result, value)
        for key, whole in alone.parts.items():
            held = [one["parts"][key] for one in reports]
            assert torch.equal(torch.cat(held, -1), whole), (name, key)
    reports = [result.get("whole rows on every rank") for result in parts]
    assert size == 1 or all("hold" in str(one) for one in reports)


def test_ranks_get_whole_shards_that_cover_every_coordinate_once() -> None:
    for dim in (0, 1, 63, 64, 65, 1000, 64 * 16, 64 * 16 + 1, 10**6):
        assert len(shards.bounds(dim)) <= shards.SHARDS
        for size in (1, 2, 3, 4, 7, 16, 20):
            parts = [shards.columns(dim, rank, size) for rank in range(size)]
            held = [at for part in parts for at in range(dim)[part]]
            assert held == list(range(dim))
            edges = {start for start, _ in shards.bounds(dim)} | {dim}
            assert {part.start for part in parts} <= edges


def test_gram_matrix_is_the_sum_of_the_gram_matrices_of_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows within shards do not change which numbers are added first across shards."""
    monkeypatch.setattr(view, "WINDOW", 1)
    rows = Rows.of(sharded.updates("long"))
    ends = [end for _, end in shards.bounds(rows.dim)]
    assert {stop for _, stop in rows.windows()} >= set(ends)
    each = [
        linalg.gram(rows.columns(slice(start, stop))) for start, stop in shards.bounds(rows.dim)
    ]
    assert torch.equal(linalg.gram(rows), functools.reduce(torch.add, each))


def test_operations_page_lists_the_stages_that_ranks_cannot_divide() -> None:
    page = " ".join((ROOT / "docs/operations.md").read_text().split())
    listed = page.partition("Ranks cannot divide the following stages, which run whole models: ")[
        2
    ].partition(". ")[0]
    whole = {name for build in BUILT.values() for name in build().undivided()}
    assert set(re.findall("`(.*?)`", listed)) == whole


def test_group_without_a_backend_for_the_cpu_is_refused(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("cuda:gloo", store=store, rank=0, world_size=1)
    try:
        group = torch.distributed.group.WORLD
        with pytest.raises(ConfigurationError, match="the group has the backends cuda:gloo, but"):
            aggregate(sharded.updates("short"), "median", f=2, group=group)
    finally:
        torch.distributed.destroy_process_group()


def test_rules_that_work_on_whole_rows_are_refused_in_a_group(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        group = torch.distributed.group.WORLD
        updates_ND = sharded.updates("short")
        assert len(aggregate(updates_ND, "median", f=2, group=group)) == sharded.SHORT
        with pytest.raises(ConfigurationError, match="sdea works on whole rows"):
            aggregate(updates_ND, "sdea", group=group)
    finally:
        torch.distributed.destroy_process_group()
