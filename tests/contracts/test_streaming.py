"""Every stage gives the same bits for a pool in memory and for a pool in a file.

The pools are larger than the memory that a pass may take at a time, because windows are shrunk to
a few coordinates.
"""

import ctypes
import gc
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Rows, State, Verdict, shards, view
from rampart_fl.shared.robust.base import Detector, PreAggregator, Rule, Stage
from rampart_fl.shared.robust.customizers import Customizer, customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.sketch import Traces
from rampart_fl.shared.runtime.disk_block import BlockStorage, MappedFile

ROOT = Path(__file__).parents[2]
N, F, D = 11, 2, 40
IDS = [f"client-{i:02d}" for i in range(N)]


NONE: Mapping[str, Any] = {}
RULES: dict[str, Mapping[str, Any]] = {
    "norm_clipping": {"threshold": 10.0},
    "monna": {"pivot": IDS[0]},
}
PREAGGREGATORS: dict[str, Mapping[str, Any]] = {
    "clipping": {"threshold": 5.0},
    "gas": {"pieces": 100},
}


@pytest.fixture(autouse=True)
def windows_of_16_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "WINDOW", 1)
    monkeypatch.setattr(shards, "GRAIN", 16)


def in_file(rows: Rows, folder: Path) -> Rows:
    """The same rows, but in a file."""
    file = MappedFile(*rows.block_ND.shape, folder)
    file.tensor.copy_(rows.block_ND)
    return replace(
        rows,
        block_ND=file.tensor,
        file=file,
        pool_statistics=replace(rows.pool_statistics),
        storage=BlockStorage(0, folder),
    )


def both(updates_ND: Tensor, folder: Path) -> tuple[Rows, Rows]:
    """Rows in memory and in a file."""
    gaps = {"loss_gap": torch.ones(N, dtype=torch.float64)}
    rows = Rows.of(updates_ND, ids=IDS, metadata=gaps)
    return rows, in_file(rows, folder)


def same(left: State, right: State) -> bool:
    """Whether two states are equal bit for bit."""
    return (left.ids, left.vectors) == (right.ids, right.vectors) and all(
        torch.equal(tensor.nan_to_num(), right.tensors[name].nan_to_num())
        for name, tensor in left.tensors.items()
    )


def test_pass_over_a_file_reads_the_same_windows_as_over_memory(
    tmp_path: Path, updates_ND: Tensor
) -> None:
    held, filed = both(updates_ND, tmp_path)
    assert list(filed.windows()) == list(held.windows()) == [(0, 16), (16, 32), (32, 40)]
    assert [stop - start for start, stop, _ in filed.chunks(12)] == [12, 4, 12, 4, 8]


def test_rules_give_the_same_bits_for_rows_in_memory_and_in_a_file(
    rule: Any, updates_ND: Tensor, tmp_path: Path
) -> None:
    member, context = rules.build(rule.name, f=F, **rule.parameters), rule.context()
    if "pivot" in rule.parameters:
        member = rules.build(rule.name, f=F, pivot=IDS[0])
    results = [member.apply(rows, member.init(D), context) for rows in both(updates_ND, tmp_path)]
    (held_D, held, report), (filed_D, filed, again) = results
    assert torch.equal(held_D, filed_D) and same(held, filed)
    assert all(torch.equal(column, again.per_row[name]) for name, column in report.per_row.items())


def test_preaggregators_give_the_same_bits_for_rows_in_memory_and_in_a_file(
    preaggregator: Any, updates_ND: Tensor, tmp_path: Path
) -> None:
    member = preaggregators.build(preaggregator.name, f=F, **preaggregator.parameters)
    mixed = []
    for rows in both(updates_ND, tmp_path):
        made, _, _ = member.apply(rows, member.init(D), preaggregator.context())
        mixed.append(rules.build("median").apply(made, State(), preaggregator.context())[0])
    assert torch.equal(*mixed)


@pytest.mark.parametrize("name", detectors.names())
def test_detectors_give_the_same_bits_for_rows_in_memory_and_in_a_file(
    name: str, updates_ND: Tensor, tmp_path: Path
) -> None:
    member = detectors.parse({"name": name, "when": "screen"}, f=F)
    if "predict" in member.needs():
        pytest.skip("runs the network, so it needs whole rows")
    judged = []
    for rows in both(updates_ND, tmp_path):
        state, verdicts = member.init(D), list[Verdict]()
        for round_ in range(2):
            context = Context(
                round=round_,
                seed=5,
                reference_D=torch.zeros(D),
                aggregate_D=rows.combine(torch.full((N,), 1 / N)),
            )
            result, state = member.apply(rows, state, context)
            verdicts += result
        judged.append((verdicts, state))
    assert judged[0][0] == judged[1][0] and same(judged[0][1], judged[1][1])


@pytest.mark.parametrize("name", ["rule foolsgold", "detector cross_round"])
def test_rows_that_a_stage_keeps_in_a_file_have_the_same_bits_as_in_memory(
    name: str, updates_ND: Tensor, tmp_path: Path
) -> None:
    """Clients come, stay away, send nothing new, and are barred."""
    stage = STAGES[name]()
    assert isinstance(stage, Rule | Detector)
    present = [range(7), range(3, N), range(0, N, 2), range(N)]
    results = []
    for whole in both(updates_ND, tmp_path):
        state, said = stage.init(D), list[object]()
        for round_, some in enumerate(present):
            rows = replace(whole.keep(list(some)), metadata={"fresh": fresh(len(some), round_)})
            rows = rows.mixed(torch.eye(len(some), dtype=torch.float64) * (1 + round_))
            if isinstance(stage, Rule):
                made_D, state, _ = stage.apply(rows, state, Context(round=round_))
                said.append(made_D.tolist())
            else:
                verdicts, state = stage.apply(rows, state, Context(round=round_))
                said += verdicts
                state = stage.forget(state, [rows.ids[round_]])
        results.append((said, state))
    (said, held), (again, filed) = results
    assert said == again and same(held, filed)
    assert not held.files and filed.files.keys() == filed.vectors == filed.tensors.keys()


def fresh(rows: int, round_: int) -> Tensor:
    """Which updates of a round are new: in the third round, not the first client's."""
    fresh_M = torch.ones(rows, dtype=torch.float64)
    fresh_M[0] = round_ != 2
    return fresh_M


@pytest.mark.parametrize("name", customizers.names())
def test_customizers_give_the_same_bits_for_rows_in_memory_and_in_a_file(
    name: str, updates_ND: Tensor, tmp_path: Path
) -> None:
    layout = (("body.weight", 0, 20), ("head.weight", 20, 36), ("head.bias", 36, D))
    member = customizers.build(name)
    made = []
    for rows in both(updates_ND, tmp_path):
        context = Context(round=3, seed=5, reference_D=torch.linspace(0, 1, D), layout=layout)
        made.append(member.apply(rows, rows, State(), context)[0])
    held, filed = made
    assert (held.models is None) == (filed.models is None)
    if held.models is not None and filed.models is not None:
        assert held.models.names == filed.models.names
        names = list(held.models.names)
        assert torch.equal(held.models.block(names), filed.models.block(names))


WIDE, LONG = 20, 1 << 19
"""Rows and coordinates of a pool that is large enough to measure memory with: 40 MiB."""


def resident(kind: str) -> int:
    """How many bytes of this process are in memory: RssAnon, or RssFile for mapped files."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{kind}:")[2].split()[0])


MMAP_THRESHOLD = -3
"""The option of `mallopt` for the size from which a block is a memory mapping of its own."""


@pytest.fixture
def no_large_block_is_kept() -> Iterator[None]:
    """The allocator returns blocks from 256 KiB on immediately: all resident memory is in use."""
    library = ctypes.CDLL(None)
    assert library.mallopt(MMAP_THRESHOLD, 1 << 18)
    yield
    assert library.mallopt(MMAP_THRESHOLD, 1 << 25)  # The C library would raise it to this.


def most_held(work: Callable[[], object], kind: str = "RssAnon") -> int:
    """Bytes that some work adds to the process's memory at its peak, including its result."""
    # Memory that earlier tests freed returns to the system: reusing it would not be measured.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, most, done = resident(kind), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.0005):
            most = max(most, resident(kind) - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        result = work()
        most = max(most, resident(kind) - before)
        del result
    finally:
        done.set()
        watching.join()
    return most


@pytest.fixture
def windows_of_2_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass may hold several windows at once; the large pool has twenty."""
    monkeypatch.setattr(view, "WINDOW", 1 << 21)
    monkeypatch.setattr(shards, "GRAIN", 1 << 14)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A pool in a file."""
    return large_rows(tmp_path_factory.mktemp("pool"))


def large_rows(folder: Path) -> Rows:
    """A large pool in a file of this folder."""
    file = MappedFile(WIDE, LONG, folder)
    draws = torch.Generator().manual_seed(1)
    for row_D in file.tensor:
        row_D.copy_(1 + 0.3 * torch.randn(LONG, generator=draws))
    file.release(list(file.tensor))
    ids = tuple(f"client-{i:02d}" for i in range(WIDE))
    traces = Traces(torch.randn(WIDE, 1024), torch.randn(WIDE, 1024))
    gaps = {"loss_gap": torch.ones(WIDE, dtype=torch.float64)}
    storage = BlockStorage(0, folder)
    return Rows(file.tensor, ids, metadata=gaps, traces=traces, file=file, storage=storage)


STAGES: dict[str, Callable[[], Stage]] = {
    **{f"rule {n}": partial(rules.build, n, f=F, **RULES.get(n, NONE)) for n in rules.names()},
    **{
        f"pre-aggregator {n}": partial(preaggregators.build, n, f=F, **PREAGGREGATORS.get(n, NONE))
        for n in preaggregators.names()
    },
    **{
        f"rule {n} with blocks": partial(rules.build, n, f=F, block_size=1 << 16)
        for n in rules.names()
        if "block_size" in rules.get(n).model_fields
    },
    **{f"detector {n}": partial(detectors.parse, {"name": n}, f=F) for n in detectors.names()},
    **{f"customizer {n}": partial(customizers.build, n) for n in customizers.names()},
}
"""How every stage is built, by family and name."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_stage_needs_less_memory_than_the_pool_exactly_if_it_streams(
    name: str, large: Rows, windows_of_2_mib: None, no_large_block_is_kept: None
) -> None:
    stage = STAGES[name]()
    if stage.needs() & {"predict", "public"}:
        assert not stage.streams
        pytest.skip("runs the network, so it needs whole rows")
    if isinstance(stage, Customizer) and stage.continues:
        pytest.skip("holds the models of the last round, from which it continues")
    layout = (("body.weight", 0, 20), ("head.weight", 20, LONG - 4), ("head.bias", LONG - 4, LONG))
    ones_D = torch.ones(LONG)
    context = Context(
        round=1,
        seed=5,
        reference_D=ones_D,
        server_update_D=ones_D,
        aggregate_D=ones_D,
        layout=layout,
    )

    def work() -> object:
        match stage:
            case Rule() | Detector():
                return stage.apply(large, stage.init(LONG), context)
            case PreAggregator():
                made = stage.apply(large, stage.init(LONG), context)[0]
                return rules.build("median").apply(made, State(), context)
            case Customizer():
                made = stage.apply(large, large, State(), context)[0].models
                return None if made is None else [None for _ in made.chunks()]
        raise AssertionError(stage)

    # Other threads of this process, and imports and buffers that stay, only add to a measurement:
    # the smallest one is the best.
    tries = 3 if stage.streams else 1
    if not stage.streams:
        work()
    assert any(most_held(work) < WIDE * LONG * 4 / 2 for _ in range(tries)) is stage.streams


def history_memory(name: str, folder: Path) -> tuple[int, int]:
    """How many bytes of history a stage declares, and how many bytes it needs at its peak."""
    # Histories are in memory here, so that their size can be measured.
    view.WINDOW, shards.GRAIN = 1 << 21, 1 << 14
    assert ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 18)
    rows, stage = replace(large_rows(folder), storage=BlockStorage()), STAGES[name]()
    seen = tuple(f"client-{i:02d}" for i in range(2, 2 + WIDE))  # Two clients are new.
    context = Context(reference_D=torch.zeros(LONG))

    def work() -> object:
        match stage:
            case Rule():
                before = State({"history": torch.ones(WIDE, LONG)}, {"history": seen})
                return before, stage.apply(rows, before, context)
            case Detector():
                before = State({"last": torch.ones(WIDE, LONG)}, {"last": seen})
                after = stage.apply(rows, before, context)[1]
                return before, after, stage.forget(after, seen[:1])
            case Customizer():
                models = {f"group:{g}": torch.ones(LONG) for g in range(10)}
                before = State({"rounds": torch.ones(10, dtype=torch.long)})
                own = replace(context, models=models)
                return models, stage.apply(rows, rows, before, own)
        raise AssertionError(stage)

    work()
    return stage.history_rows(WIDE + 2) * LONG * 4, most_held(work)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["rule foolsgold", "detector cross_round", "customizer flcert"])
def test_history_takes_the_memory_that_the_stage_declares(name: str, tmp_path: Path) -> None:
    # A new process has no threads and no memory of earlier tests, which would change the result.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        declared, held = pool.submit(history_memory, name, tmp_path).result()
    # In addition, memory holds a few vectors and the windows of rows that are being read.
    assert 0.9 * declared < held < declared + 6 * LONG * 4 + (4 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rule foolsgold", "detector cross_round"])
def test_rows_that_a_stage_keeps_in_a_file_are_in_memory_only_piece_by_piece(
    name: str, large: Rows, windows_of_2_mib: None
) -> None:
    stage, context = STAGES[name](), Context(round=1)
    assert isinstance(stage, Rule | Detector)
    # The last entry of the result is the state of a detector; the second is the state of a rule.
    before = next(one for one in stage.apply(large, State(), context) if isinstance(one, State))
    most = most_held(lambda: stage.apply(large, before, context), "RssFile")
    assert most < WIDE * LONG * 4 / 2


@pytest.mark.parametrize("name", ["pre-aggregator gas", "rule dnc"])
def test_stages_that_read_single_coordinates_release_the_pages_of_the_file(
    name: str, large: Rows, windows_of_2_mib: None
) -> None:
    stage = STAGES[name]()
    assert isinstance(stage, Rule | PreAggregator)
    assert large.file is not None
    large.file.release(list(large.block_ND))
    before = resident("RssFile")
    stage.apply(large, State(), Context(round=1, seed=5))
    # Imports may add some pages of libraries; the pool has 40 MiB.
    assert resident("RssFile") - before < WIDE * LONG * 4 / 2


def test_operations_page_lists_the_stages_that_do_not_stream() -> None:
    page = " ".join((ROOT / "docs/operations.md").read_text().split())
    listed = page.partition("On a CPU, the rules ")[2].partition(" must hold all updates")[0]
    stages = [build() for build in STAGES.values()]
    held = {stage.name for stage in stages if not stage.streams}
    assert set(re.findall("`(.*?)`", listed)) == held


def test_released_rows_use_no_memory_and_keep_their_values(tmp_path: Path) -> None:
    file = MappedFile(4, 1 << 20, tmp_path)
    before = resident("RssFile")
    file.tensor.copy_(torch.arange(4.0)[:, None].expand(4, 1 << 20))
    written = resident("RssFile")
    file.release(list(file.tensor))
    released = resident("RssFile")
    assert written - before > 15 << 20 and released - before < 2 << 20
    file.fetch([file.tensor[2]]).result()
    assert resident("RssFile") - released > 3 << 20
    assert file.tensor[:, 7].tolist() == [0, 1, 2, 3]
