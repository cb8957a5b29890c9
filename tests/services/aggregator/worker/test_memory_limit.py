"""The worker refuses stages that need more memory than RAMPART_POOL_MEMORY."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.byte_size import readable
from rampart_fl.services.aggregator.worker.memory_limit import memory_for_blocks
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.robust.shards import Part
from tests.other_device import DEVICE, other_device

DIM = 650
ROW = 4 * DIM


def memory_left(rows: int, server: dict[str, Any], **tables: Any) -> int:
    """The rows that remain for blocks if the limit is this many rows."""
    data = {"dataset": "digits", "clients": 12}
    given = {"name": "limit", "data": data, "model": "logistic", "server": server, **tables}
    experiment = Experiment.from_tables(given)
    left = memory_for_blocks(experiment, build_plan(experiment), DIM, ROW, rows * ROW)
    assert left % ROW == 0
    return left // ROW


PUBLIC = {"public": {"dataset": "digits", "size": 20}}


@pytest.mark.parametrize(
    ("server", "tables", "blocks", "kept", "groups"),
    [
        ({"rule": "sdea"}, {}, 12, 0, 0),
        ({"rule": "sdea"}, {"fraction": 0.5}, 6, 0, 0),
        # Under the buffered policy, a round may use an update of every client.
        ({"rule": "sdea"}, {"fraction": 0.5, "policy": "buffered"}, 12, 0, 0),
        ({"rule": "sdea"}, {"phases": {"joining": {"clients": 20}}}, 20, 0, 0),
        ({"rule": "sdea", "calibrate": False}, {}, 24, 0, 0),
        ({"rule": "sdea", "customizer": "fedcap"}, {}, 24, 0, 0),
        ({"rule": "sdea", "customizer": "fedcap", "calibrate": False}, {}, 48, 0, 0),
        # The detector keeps a row of every client, although only six clients are drawn.
        ({"rule": "sdea", "detectors": ["cross_round"]}, {"fraction": 0.5}, 6, 36, 0),
        ({"rule": "sdea", "customizer": {"name": "flcert", "groups": 5}}, {}, 12, 0, 10),
        (
            {"rule": "sdea", "customizer": {"name": "flcert", "groups": 5, "rule": "foolsgold"}},
            {},
            12,
            24,
            10,
        ),
        (
            {
                "rule": "sdea",
                "customizer": {"name": "clustered", "clusters": 3, "rule": "foolsgold"},
            },
            {},
            12,
            3 * 24,
            6,
        ),
        ({"rule": "median", "customizer": {"name": "flcert", "groups": 5}}, {}, 0, 0, 10),
        ({"rule": "median", "customizer": {"name": "clustered", "clusters": 3}}, {}, 0, 0, 6),
        (
            {
                "rule": "median",
                "customizer": {"name": "flcert", "groups": 5, "rule": "centered_clipping"},
            },
            {},
            0,
            0,
            20,
        ),
        ({"rule": "foolsgold", "detectors": ["cross_round"]}, {}, 0, 0, 0),
        ({"rule": "median"}, {}, 0, 0, 0),
        ({"rule": "median", "customizer": "fedcap", "detectors": ["response"]}, {}, 0, 0, 0),
    ],
)
def test_limit_must_hold_what_cannot_be_in_files(
    server: dict[str, Any], tables: dict[str, Any], blocks: int, kept: int, groups: int
) -> None:
    """Groups' models are always in memory; all rows are, if a stage needs all updates there."""
    needed = blocks + kept + groups
    public = PUBLIC if server["rule"] == "sdea" else {}
    server = {**server, **public}
    assert memory_left(needed, server, **tables) == blocks + kept
    assert memory_left(1000, server, **tables) == 1000 - groups
    if needed:
        with pytest.raises(ConfigurationError):
            memory_left(needed - 1, server, **tables)


def test_refusal_says_what_takes_how_much_memory() -> None:
    server = {"rule": "sdea", "detectors": ["cross_round"], **PUBLIC}
    said = (
        r"'sdea' needs all updates in memory \(reads all rows in each step, and runs every "
        r"client's model\): 6 rows of 650 numbers for 6 updates take 15\.2 KiB, and 36 rows of "
        r"earlier rounds that 'cross_round' may hold, with 12 clients, take 91\.4 KiB; together "
        r"106\.6 KiB, but "
        r"RAMPART_POOL_MEMORY is 104\.1 KiB"
    )
    with pytest.raises(ConfigurationError, match=said):
        memory_left(41, server, fraction=0.5)
    grouped = {"rule": "median", "customizer": {"name": "flcert", "groups": 5}}
    with pytest.raises(
        ConfigurationError, match=r"^10 models of groups that 'flcert' may hold take"
    ):
        memory_left(9, grouped)


def test_round_engine_refuses_stages_and_gives_blocks_the_rest(tmp_path: Path) -> None:
    data = {"dataset": "digits", "clients": 7}
    tables = {"name": "limit", "data": data, "model": "logistic"}
    server = {"rule": "median", "detectors": ["fedredefense"]}
    experiment, blobs = Experiment.from_tables({**tables, "server": server}), Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    assert spec.dim == DIM
    with pytest.raises(ConfigurationError, match="'fedredefense' needs all updates in memory"):
        RoundEngine(experiment, spec, blobs, torch.device("cpu"), 7 * ROW - 1)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), 7 * ROW)
    round_engine.restore(first)
    for clients, filed in ((7, False), (8, True)):
        round_engine.open_round([f"client-{n}" for n in range(clients)])
        assert round_engine.arrivals is not None
        assert (round_engine.arrivals.pool.block.file is not None) is filed
        round_engine.abandon_round(first)


@pytest.mark.parametrize(
    ("server", "rows"),
    [
        ({"rule": "median"}, 7),
        ({"rule": "median", "calibrate": False}, 14),
        ({"rule": "median", "customizer": "fedcap"}, 14),
        ({"rule": "median", "customizer": {"name": "flcert", "groups": 2}}, 7 + 4),
    ],
)
def test_all_blocks_must_fit_on_a_device_that_cannot_keep_them_in_files(
    server: dict[str, Any], rows: int, tmp_path: Path
) -> None:
    tables = {"name": "limit", "data": {"dataset": "digits", "clients": 7}, "model": "logistic"}
    experiment, blobs = Experiment.from_tables({**tables, "server": server}), Blobs(tmp_path)
    spec, _ = RoundEngine.first_model(experiment, blobs)
    with other_device():
        RoundEngine(experiment, spec, blobs, DEVICE, rows * ROW)
        with pytest.raises(ConfigurationError, match="updates take") as refused:
            RoundEngine(experiment, spec, blobs, DEVICE, rows * ROW - 1)
    said = str(refused.value)
    assert said.endswith(
        f"together {readable(rows * ROW)}, but RAMPART_POOL_MEMORY is {readable(rows * ROW - 1)}"
    )
    if rows != 11:
        assert said.startswith(f"a GPU holds all updates in its memory: {rows} rows of 650 numbers")


@pytest.mark.parametrize("held", [100, 200])
def test_rank_with_fewer_coordinates_keeps_the_same_blocks_in_files(
    held: int, tmp_path: Path
) -> None:
    class Uneven(Ranks):
        """Two ranks, with 100 and 200 coordinates."""

        def part(self, dim: int) -> Part | None:
            return Part(dim, 0, held)

        def most(self, dim: int) -> int:
            return 200

    tables = {"name": "limit", "data": {"dataset": "digits"}, "model": "logistic"}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, first = RoundEngine.first_model(experiment, blobs)
    cpu = torch.device("cpu")
    round_engine = RoundEngine(experiment, spec, blobs, cpu, 7 * 4 * 200, Uneven())
    round_engine.restore(first)
    for clients, filed in ((7, False), (8, True)):
        round_engine.open_round([f"client-{n}" for n in range(clients)])
        assert round_engine.arrivals is not None
        assert (round_engine.arrivals.pool.block.file is not None) is filed
        round_engine.abandon_round(first)
