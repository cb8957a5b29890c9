"""The worker's round engine: cases that cannot run over the network, and other devices.

Legend: D coordinates.
"""

import errno
import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from weakref import WeakSet

import pytest
import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.services.aggregator.worker.run_start import check_networked
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.errors import ConfigurationError, Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.robust import shards, view
from rampart_fl.shared.robust.evidence import groups
from rampart_fl.shared.round.rounds import RoundDecision, Rounds
from rampart_fl.shared.runtime import disk_block
from tests.other_device import DEVICE, SUMS, other_device

CLIENTS = [f"client-{i}" for i in range(7)]


def test_simulation_only_personalizer_is_refused_over_the_network() -> None:
    tables = {"name": "exact", "data": {"dataset": "digits"}, "model": "logistic"}
    shared, exact = (
        Experiment.from_tables({**tables, "personalizer": {"name": "interpolated", "mode": mode}})
        for mode in ("shared", "exact")
    )
    assert check_networked(shared) is shared
    with pytest.raises(ConfigurationError, match="simulations only"):
        check_networked(exact)


@pytest.mark.parametrize(
    ("rule", "customizer", "calibrate"),
    [
        (["nnm", "trimmed_mean"], {"name": "fedcap"}, True),
        ("sign_guard", {"name": "fedcap"}, False),
        ("foolsgold", {"name": "fedfomo"}, True),
        ("centered_clipping", {"name": "flcert", "groups": 2}, True),
    ],
)
def test_a_worker_on_another_device_stores_the_same_models(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: object,
    customizer: dict[str, object],
    calibrate: bool,
) -> None:
    monkeypatch.setenv("RAMPART_KERNELS", "torch")
    server = {"rule": rule, "f": 1, "customizer": customizer, "calibrate": calibrate}
    server |= {"momentum": 0.5, "detectors": ["norm_bound", "cross_round"]}
    if customizer["name"] == "flcert":
        server |= {"detectors": ["norm_bound"], "eviction": {"bounded": False}}
    tables = {"name": "there", "data": {"dataset": "digits"}, "model": "logistic", "server": server}
    experiment = Experiment.from_tables(tables)
    here = models(experiment, tmp_path / "here", torch.device("cpu"))
    with other_device():
        there = models(experiment, tmp_path / "there", DEVICE)
    assert here.keys() == there.keys()
    for name, model_D in here.items():
        torch.testing.assert_close(there[name], model_D, **SUMS)


KEEPS_ROWS: dict[str, Any] = {"detectors": ["cross_round"], "momentum": 0.5}
"""Settings of a server whose detector keeps a row for every client."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "server",
    [{}, {"calibrate": False}, {"rule": "foolsgold", **KEEPS_ROWS}],
)
def test_a_pool_on_disk_gives_the_same_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: dict[str, Any]
) -> None:
    monkeypatch.setattr(view, "WINDOW", 1)
    monkeypatch.setattr(shards, "GRAIN", 64)
    tables = streamed("median")
    tables["server"] |= server
    held, filed = (
        models(Experiment.from_tables(tables), tmp_path / name, torch.device("cpu"), memory)
        for name, memory in (("memory", None), ("disk", 1000))
    )
    assert held.keys() == filed.keys()
    assert all(torch.equal(model_D, filed[name]) for name, model_D in held.items())


@pytest.mark.parametrize("pool_memory", [None, 1000])
def test_state_is_read_only_after_a_restart_and_is_then_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool_memory: int | None
) -> None:
    server = {"rule": "foolsgold", **KEEPS_ROWS}
    experiment = Experiment.from_tables({**streamed("median"), "server": server})
    blobs = Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    opened, read = list[str](), blobs.open

    def noted(digest: str) -> BinaryIO:
        opened.append(digest)
        return read(digest)

    monkeypatch.setattr(blobs, "open", noted)

    def engine(snapshot: Snapshot) -> RoundEngine:
        made = RoundEngine(experiment, spec, blobs, torch.device("cpu"), pool_memory)
        made.restore(snapshot)
        return made

    def next_round(engine: RoundEngine, round_: int) -> Snapshot:
        assert engine.snapshot is not None
        uploads = equal_uploads(blobs, spec, engine.snapshot.global_model)
        engine.open_round(CLIENTS)
        return engine.close_round(round_, uploads, "0-0", (), Standing(7, 7)).snapshot

    running = engine(first)
    second = next_round(running, 0)
    assert second.state is not None
    opened.clear()
    third = next_round(running, 1)
    assert second.state not in opened
    assert next_round(engine(second), 1) == third
    assert second.state in opened


@pytest.mark.parametrize(
    ("rule", "customizer", "detectors", "calibrate", "passes"),
    [
        ("weighted_mean", "global_model", [], True, 1),
        ("median", "global_model", [], True, 1),
        (["nnm", "trimmed_mean"], "global_model", [], True, 2),
        ("weighted_mean", "fedcap", ["response", "challenge"], True, 3),
        ("weighted_mean", "global_model", [{"name": "norm_bound", "threshold": 1e3}], False, 1),
    ],
)
def test_a_whole_round_reads_a_pool_on_disk_no_more_often_than_its_stages_state(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: object,
    customizer: str,
    detectors: list[object],
    calibrate: bool,
    passes: int,
) -> None:
    monkeypatch.setattr(view, "WINDOW", 1)
    monkeypatch.setattr(shards, "GRAIN", 64)
    fetched = 0

    class CountedFile(disk_block.MappedFile):
        def fetch(self, parts: Sequence[Tensor]) -> Future[None]:
            nonlocal fetched
            fetched += len(parts[0])
            return super().fetch(parts)

    monkeypatch.setattr(disk_block, "MappedFile", CountedFile)
    server = {"rule": rule, "f": 1, "customizer": customizer, "detectors": detectors}
    tables = {**streamed("median"), "server": {**server, "calibrate": calibrate}}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, first, round_engine = in_open_round(experiment, blobs)
    receipts, lengths = equal_uploads(blobs, spec, first.global_model), dict[str, float]()
    for seed, client in enumerate(CLIENTS):
        upload_D = torch.randn(spec.dim, generator=torch.Generator().manual_seed(seed))
        digest = blobs.put(wire.encode(spec, upload_D.numpy()))
        receipts[client] = receipts[client].model_copy(update={"digest": digest})
        lengths[client] = upload_D.double().norm().item()
    round_engine.load(receipts.values())
    assert fetched == 0
    result = round_engine.close_round(0, receipts, "0-0", (), Standing(7, 7))
    assert fetched == passes * spec.dim
    assert result.record.norms == pytest.approx(lengths)
    assert list(result.timings)[-2:] == ["store", "record"]


def test_stages_learn_which_clients_were_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, blobs = Experiment.from_tables(streamed("weighted_mean")), Blobs(tmp_path)
    spec, first, round_engine = in_open_round(experiment, blobs)
    receipts = equal_uploads(blobs, spec, first.global_model)
    seen, relays = list[object](), groups.relays

    def record(*given: Any) -> Any:
        seen.append(given[3])
        return relays(*given)

    monkeypatch.setattr("rampart_fl.shared.robust.evidence.groups.relays", record)
    selected = frozenset({*CLIENTS, "absent"})
    round_engine.close_round(0, receipts, "0-0", (), Standing(8, 8), selected)
    assert seen[-1] == selected


@pytest.mark.parametrize(("most", "silent"), [(None, ("absent", "earlier")), (0.9, ())])
def test_awaited_clients_that_send_nothing_are_remembered_if_rounds_wait_for_them(
    tmp_path: Path, most: float | None, silent: tuple[str, ...]
) -> None:
    phases = {"collecting": {"count": {"min": 0.5, "max": most}}} if most else {}
    tables = {**streamed("weighted_mean"), "phases": phases}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, first, round_engine = in_open_round(experiment, blobs)
    awaited = {"awaited": (CLIENTS[0], "absent"), "silent": (CLIENTS[1], "earlier")}
    round_engine.snapshot = first.model_copy(update=awaited)
    receipts = equal_uploads(blobs, spec, first.global_model)
    selected = frozenset({*CLIENTS, "absent", "slow but not awaited"})
    result = round_engine.close_round(0, receipts, "0-0", (), Standing(9, 9), selected)
    assert result.snapshot.silent == silent


def test_examined_updates_are_judged_and_not_aggregated(tmp_path: Path) -> None:
    experiment, blobs = Experiment.from_tables(streamed("weighted_mean")), Blobs(tmp_path)
    spec, first, round_engine = in_open_round(experiment, blobs)
    receipts = equal_uploads(blobs, spec, first.global_model)
    examined = frozenset(CLIENTS[:2])
    selected = frozenset(CLIENTS)
    result = round_engine.close_round(0, receipts, "0-0", (), Standing(7, 7), selected, examined)
    assert {verdict.client for verdict in result.record.verdicts} == {*CLIENTS}
    assert not examined & result.record.weights.keys()
    assert not examined & result.snapshot.customized.keys()


def in_open_round(experiment: Experiment, blobs: Blobs) -> tuple[ModelSpec, Snapshot, RoundEngine]:
    """An engine whose round is open, and whose updates are on disk; the model and its spec."""
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), 1000)
    round_engine.restore(first)
    round_engine.open_round(CLIENTS)
    return spec, first, round_engine


def streamed(rule: str, calibrate: bool = True) -> dict[str, Any]:
    """An experiment with FedCAP's models and the default detectors."""
    server = {"rule": rule, "f": 1, "customizer": "fedcap", "calibrate": calibrate}
    server |= {"detectors": ["response", "challenge"]}
    data = {"dataset": "digits", "clients": 7}
    return {"name": "disk", "data": data, "model": "logistic", "server": server}


def test_a_round_that_does_not_fit_on_the_disk_has_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, blobs = Experiment.from_tables(streamed("median")), Blobs(tmp_path)
    spec, _ = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), 1000)
    # Seven updates, the global model, seven customized and seven challenged models, seven rows.
    free = 4 * 650 * 29
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert round_engine.disk_shortage(7) == ""
    free -= 1
    assert round_engine.disk_shortage(7) == (
        f"disk: a round of 7 clients needs 73.6 KiB in {tmp_path} (7 updates, 15 models, 7 rows in "
        "temporary files), but only 73.6 KiB of disk space is free"
    )


@pytest.mark.parametrize(
    ("server", "models"),
    [
        ({"detectors": ["response", "challenge"]}, 8),
        ({"detectors": [{"name": "response", "challenges": False}]}, 1),
        ({"detectors": []}, 1),
        ({"detectors": [], "customizer": {"name": "flcert", "groups": 2}}, 3),
    ],
)
def test_disk_check_counts_every_model_that_a_round_may_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: dict[str, Any], models: int
) -> None:
    tables = {**streamed("median"), "server": {"rule": "median", **server}}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, _ = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert f"(7 updates, {models} models)" in round_engine.disk_shortage(7)


@pytest.mark.parametrize("calibrate", [True, False])
def test_disk_check_does_not_count_the_file_that_the_next_round_reuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrate: bool
) -> None:
    server = {"rule": "median", "detectors": [], "calibrate": calibrate}
    experiment = Experiment.from_tables({**streamed("median"), "server": server})
    blobs = Blobs(tmp_path)
    spec, first, round_engine = in_open_round(experiment, blobs)
    receipts = equal_uploads(blobs, spec, first.global_model)
    standing = Standing(len(CLIENTS), len(CLIENTS))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
        assert f", {7 if calibrate else 14} rows in temporary files)" in round_engine.disk_shortage(
            7
        )
    round_engine.close_round(0, receipts, "0-0", (), standing)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    left = "1 models)" if calibrate else "1 models, 7 rows in temporary files)"
    assert left in round_engine.disk_shortage(7)
    # A pool of another size needs another file.
    assert f", {6 if calibrate else 12} rows in temporary files)" in round_engine.disk_shortage(6)


@pytest.mark.parametrize(
    ("rule", "server", "rows"),
    [
        ("median", {"detectors": ["cross_round"]}, 7),
        ("foolsgold", {"detectors": ["cross_round"]}, 14),
        ("centered_clipping", {"momentum": 0.5}, 2),
        ("median", {"customizer": {"name": "flcert", "groups": 2, "rule": "foolsgold"}}, 7),
    ],
)
def test_disk_check_counts_the_rows_that_stages_keep(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    server: dict[str, Any],
    rows: int,
) -> None:
    tables = {**streamed(rule), "server": {"rule": rule, "detectors": [], **server}}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))
    round_engine.restore(first)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
        said = round_engine.disk_shortage(7)
    assert f", {rows} rows of the stages' state)" in said
    receipts = equal_uploads(blobs, spec, first.global_model)
    round_engine.open_round(CLIENTS)
    round_engine.close_round(0, receipts, "0-0", (), Standing(7, 7))
    assert round_engine.snapshot is not None
    assert round_engine.snapshot.state is not None
    stored = blobs.path(round_engine.snapshot.state).stat().st_size
    assert rows - 1 < stored / ROW <= rows + 1, "the blob also has ids and short tensors"


def test_disk_check_counts_no_more_updates_than_the_cache_of_an_object_store_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has room for two updates and holds one; it stores an update before it deletes."""
    server = {"rule": "median", "detectors": [], "calibrate": False}
    experiment = Experiment.from_tables({**streamed("median"), "server": server})
    blobs = RunBlobs("memory://", tmp_path, most=2 * ROW).of_run("run")
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), 1000)
    size = blobs.path(first.global_model).stat().st_size
    # Updates in the cache, the global model, and fourteen rows of the pool.
    free = (2 * ROW - size) + ROW + ROW * (1 + 14)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert round_engine.disk_shortage(7) == ""
    assert round_engine.disk_shortage(1) == ""
    free -= 1
    said = (
        r"\(up to 4\.9 KiB more in the cache for 7 updates, 1 models, "
        r"14 rows in temporary files\)"
    )
    assert re.search(said, round_engine.disk_shortage(7))


def test_disk_that_does_not_answer_makes_the_round_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, blobs = Experiment.from_tables(streamed("median")), Blobs(tmp_path)
    spec, _ = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))

    def stale(folder: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(shutil, "disk_usage", stale)
    with pytest.raises(Unavailable, match="blobs: Stale file handle"):
        round_engine.disk_shortage(7)


def test_buffered_round_has_rows_for_offline_clients_from_the_start(tmp_path: Path) -> None:
    tables = {**streamed("median"), "policy": "buffered"}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))
    round_engine.restore(first)
    round_engine.open_round(CLIENTS)
    receipts = equal_uploads(blobs, spec, first.global_model)
    round_engine.close_round(0, receipts, "0-0", (), Standing(7, 7))
    assert round_engine.clients_with_rows(CLIENTS[:5]) == set(CLIENTS)
    round_engine.open_round(CLIENTS[:5])
    assert round_engine.arrivals is not None
    assert len(round_engine.arrivals.pool.block) == 7


ROW = 4 * 650


def equal_uploads(blobs: Blobs, spec: ModelSpec, started: str) -> dict[str, Receipt]:
    """One upload of every client, all with the same numbers."""
    digest = blobs.put(wire.encode(spec, torch.ones(spec.dim).numpy()))
    upload = {"round": 0, "kind": "update", "digest": digest, "started": started, "samples": 10}
    return {c: Receipt.model_validate({**upload, "client": c}) for c in CLIENTS}


def rows_in_files(round_engine: RoundEngine, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Rows of the next pool that are in files: as the disk check says, and as the pool is made."""
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
        said = re.search(r", (\d+) rows in temporary files", round_engine.disk_shortage(7))
    files, made = disk_block.MappedFile, 0

    def noted(rows: int, dim: int, folder: Path) -> disk_block.MappedFile:
        nonlocal made
        made += rows
        return files(rows, dim, folder)

    with monkeypatch.context() as patch:
        patch.setattr(disk_block, "MappedFile", noted)
        round_engine.open_round(CLIENTS)
    return int(said[1]) if said else 0, made


@pytest.mark.parametrize(
    ("customizer", "calibrate", "memory", "filed"),
    [
        ("global_model", True, 7, [0, 0, 0]),
        ("global_model", True, 6, [7, 0, 0]),  # The file is reused.
        ("global_model", False, 13, [7, 7, 7]),
        ("fedcap", True, 14, [0, 0, 0]),
        ("fedcap", True, 13, [0, 7, 0]),  # The block of the last round counts until it is freed.
        ("fedcap", False, 27, [0, 7, 0]),
        ("fedcap", False, 20, [0, 14, 0]),
    ],
)
def test_limit_holds_for_the_blocks_of_this_round_and_the_last_together(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    customizer: str,
    calibrate: bool,
    memory: int,
    filed: list[int],
) -> None:
    server = {"rule": "median", "detectors": [], "customizer": customizer, "calibrate": calibrate}
    experiment = Experiment.from_tables({**streamed("median"), "server": server})
    blobs = Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), memory * ROW)
    round_engine.restore(first)
    for round_, expected in enumerate(filed):
        assert rows_in_files(round_engine, monkeypatch) == (expected, expected)
        assert round_engine.snapshot is not None
        receipts = equal_uploads(blobs, spec, round_engine.snapshot.global_model)
        round_engine.close_round(round_, receipts, "0-0", (), Standing(7, 7))


def test_round_without_an_outcome_leaves_its_block_to_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, blobs = Experiment.from_tables(streamed("median")), Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), 7 * ROW)
    round_engine.restore(first)
    round_engine.open_round(CLIENTS)
    round_engine.abandon_round(first)
    assert rows_in_files(round_engine, monkeypatch) == (0, 0)
    round_engine.abandon_round(first)
    round_engine.open_round(CLIENTS[:6])
    assert round_engine.arrivals is not None
    assert round_engine.arrivals.pool.block.file is None, "the larger block is freed first"


def test_start_model_is_not_in_memory_while_a_round_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, blobs = Experiment.from_tables(streamed("median")), Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))
    round_engine.restore(first)
    read, decide = round_engine._vectors.read, Rounds.decide
    alive, held = WeakSet[Tensor](), list[int]()

    def noted(digest: str, out_D: Tensor | None = None) -> Tensor:
        vector_D = read(digest, out_D)
        if out_D is None:
            alive.add(vector_D)
        return vector_D

    def decided(self: Rounds, *arguments: Any) -> RoundDecision:
        held.append(len(alive))
        return decide(self, *arguments)

    monkeypatch.setattr(round_engine._vectors, "read", noted)
    monkeypatch.setattr(Rounds, "decide", decided)
    other = blobs.put(wire.encode(spec, torch.zeros(spec.dim).numpy()))
    for started in (first.global_model, other):
        round_engine.restore(first)
        round_engine.open_round(CLIENTS)
        receipts = equal_uploads(blobs, spec, started)
        round_engine.load(list(receipts.values()))
        round_engine.close_round(0, receipts, "0-0", (), Standing(7, 7))
    assert held == [1, 1], "only the reference"


def models(
    experiment: Experiment,
    folder: Path,
    device: torch.device,
    pool_memory: int | None = None,
    ranks: Ranks | None = None,
) -> dict[str, Tensor]:
    """Every model that two rounds and a probe store; one upload per round is far too large."""
    blobs = Blobs(folder)
    spec, first = RoundEngine.first_model(experiment, blobs)
    seed = experiment.seed + 1
    with (ranks or Ranks()).on_all_ranks("begin", folder.name, experiment, spec, seed):
        round_engine = RoundEngine(experiment, spec, blobs, device, pool_memory, ranks, seed)
    made: dict[str, Tensor] = {}
    round_engine.restore(first)
    draws, vectors = torch.Generator().manual_seed(3), Vectors(blobs, spec, torch.device("cpu"))

    def receipt(client: str, round_: int, started: str) -> Receipt:
        update_D = 0.1 * torch.randn(spec.dim, generator=draws) + 0.2
        if client == CLIENTS[-1]:
            update_D *= -100
        return Receipt(
            round=round_,
            kind="update",
            client=client,
            digest=blobs.put(wire.encode(spec, update_D.numpy())),
            started=started,
            samples=10,
        )

    for round_ in range(2):
        round_engine.open_round(CLIENTS)
        assert round_engine.snapshot is not None
        starts = {client: round_engine.snapshot.start(client) for client in CLIENTS}
        receipts = {c: receipt(c, round_, start) for c, start in starts.items()}
        round_engine.load(list(receipts.values())[:4])
        standing = Standing(len(CLIENTS), len(CLIENTS))
        snapshot = round_engine.close_round(round_, receipts, "0-0", (), standing).snapshot
        stored = {"global": snapshot.global_model, **snapshot.customized}
        made |= {f"{name} {round_}": vectors.read(digest) for name, digest in stored.items()}
    round_engine.restore(snapshot)
    round_engine.open_round(CLIENTS)
    if round_engine.probes:
        asked = receipt("newcomer", 2, snapshot.global_model)
        made["newcomer"] = vectors.read(
            round_engine.customize_newcomer("newcomer", asked.digest, 2)
        )
    return made
