"""Estimates follow their formula; tests/integration/test_estimate.py compares them with a run."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.estimate import PROCESS, SKETCH, VECTORS, estimate, of_model
from rampart_fl.shared.learning.network.vector import build_module, spec_of
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.robust.view import WINDOW
from rampart_fl.shared.simulation import simulate

N, DIM = 10, 64 * 400 + 400 + 400 * 10 + 10
B = 4 * DIM
SKETCHES = 2 * SKETCH / B


def estimated(**tables: Any) -> Estimate:
    given: dict[str, Any] = {
        "name": "small",
        "rounds": 5,
        "data": {"dataset": "digits", "clients": N, "samples": 60},
        "model": {"name": "mlp", "hidden": [400]},
    }
    return estimate(Experiment.from_tables({**given, **tables}))


def rows(needs: Estimate) -> tuple[float, float]:
    """What the worker's memory and the blobs hold, in multiples of N models."""
    return (needs.memory_bytes - PROCESS) / (N * B), (needs.disk_bytes - needs.record_bytes) / (
        N * B
    )


@pytest.mark.parametrize(
    ("tables", "memory", "disk"),
    [
        ({}, 1.3, 1.4),
        ({"server": {"calibrate": False}}, 2.3, 1.4),
        ({"server": {"customizer": "fedcap"}}, 2.3, 4.4),
        ({"server": {"customizer": "fedcap", "calibrate": False}}, 4.3, 4.4),
        ({"server": {"customizer": {"name": "clustered", "clusters": 5}}}, 2.3, 2.4),
        ({"policy": "buffered"}, 1.3, 2.4),
        ({"server": {"rule": "foolsgold"}}, 3.3, 3.4),
        ({"server": {"detectors": ["cross_round"]}}, 4.3 + SKETCHES, 3.4 + SKETCHES),
    ],
)
def test_memory_and_disk_estimates_match_hand_calculation(
    tables: dict[str, Any], memory: float, disk: float
) -> None:
    needs = estimated(**tables)
    assert (needs.parameters, needs.clients) == (DIM, N)
    assert rows(needs) == (pytest.approx(memory), pytest.approx(disk))


def test_stage_that_remembers_clients_keeps_a_row_of_every_client_not_only_of_drawn_ones() -> None:
    half = estimated(fraction=0.5, server={"rule": "foolsgold"})
    assert half.clients == N / 2
    assert rows(half) == (pytest.approx(1.3 / 2 + 2), pytest.approx(1 / 2 + 2 + 0.4))


@pytest.mark.parametrize(
    ("server", "limit", "memory", "disk"),
    [
        ({}, 1, 1.3, 1.4),
        ({}, 0.99, 0.3, 2.4),
        ({"customizer": "fedcap"}, 2, 2.3, 4.4),
        ({"customizer": "fedcap"}, 1.5, 1.3, 5.4),
        ({"customizer": "fedcap"}, 0, 0.3, 6.4),
        ({"rule": "foolsgold"}, 3, 3.3, 3.4),
        ({"rule": "foolsgold"}, 2.99, 1.3, 5.4),
        ({"rule": "foolsgold"}, 0.99, 0.3, 6.4),
        ({"customizer": {"name": "clustered", "clusters": 5}}, 2, 2.3, 2.4),
        ({"customizer": {"name": "clustered", "clusters": 5}}, 1.5, 1.3, 3.4),
    ],
)
def test_blocks_beyond_the_memory_limit_are_on_disk(
    server: dict[str, Any], limit: float, memory: float, disk: float
) -> None:
    """The limit is a multiple of N rows, and holds for the rows of earlier rounds, too."""
    tables = {"model": {"name": "mlp", "hidden": [400]}, "server": server}
    data = {"dataset": "digits", "clients": N, "samples": 60}
    experiment = Experiment.from_tables({"name": "small", "rounds": 5, "data": data, **tables})
    spec, plan = spec_of(build_module(experiment)), build_plan(experiment)
    needs = of_model(experiment, spec, plan, round(limit * N * B))
    assert rows(needs) == (pytest.approx(memory), pytest.approx(disk))


def test_memory_for_rows_in_a_file_does_not_grow_with_the_number_of_rows() -> None:
    data = {"dataset": "digits", "clients": 500, "samples": 2}
    model = {"name": "mlp", "hidden": [20_000]}
    experiment = Experiment.from_tables({"name": "many", "data": data, "model": model})
    spec, plan = spec_of(build_module(experiment)), build_plan(experiment)
    needs = of_model(experiment, spec, plan, 0)
    assert needs.memory_bytes == PROCESS + 2 * WINDOW + VECTORS * 4 * spec.dim


def test_client_traffic_estimate_matches_hand_calculation() -> None:
    plain = estimated()
    assert plain.down_bytes - B in range(200, 500) and plain.up_bytes - plain.down_bytes == 400
    assert plain.client_bytes == 5 * (plain.down_bytes + plain.up_bytes) + plain.down_bytes
    half = estimated(fraction=0.4)
    assert half.client_bytes == 2 * (plain.down_bytes + plain.up_bytes) + plain.down_bytes
    assert half.clients == 4
    offers = estimated(server={"customizer": {"name": "fedfomo", "peers": 3}})
    assert offers.down_bytes == 4 * plain.down_bytes


def test_round_traffic_estimate_matches_a_simulation() -> None:
    torch.set_num_threads(1)
    tables = {
        "name": "small",
        "rounds": 2,
        "data": {"dataset": "digits", "clients": 4},
        "model": {"name": "mlp", "hidden": [400]},
        "training": {"epochs": 1},
    }
    experiment = Experiment.from_tables(tables)
    needs, run = estimate(experiment), simulate(experiment).summary()["bytes_per_client"]
    assert needs.down_bytes == run["down"]
    assert abs(needs.up_bytes - run["up"]) < 400


def test_a_model_that_does_not_fit_into_memory_is_estimated() -> None:
    """The estimate says that the model is too large; it does not run out of memory itself."""
    huge = {"name": "cnn", "channels": [16, 10**8], "hidden": 10**6}
    experiment = Experiment.load("digits-benign").model_copy(update={"model": huge})
    assert estimate(experiment).memory_bytes > 10**15


def test_records_have_the_weights_of_all_customized_models_even_if_clients_are_summoned() -> None:
    tables = {"name": "t", "data": {"dataset": "digits", "clients": 100}, "model": "logistic"}
    sizes = {}
    for summons in (0.0, 1.0):
        server = {"customizer": "fedcap", "detectors": ["challenge"], "summons": summons}
        half = Experiment.from_tables({**tables, "fraction": 0.5, "server": server})
        sizes[summons] = estimate(half).record_bytes / half.rounds
    assert sizes == {0.0: 600 + 150 * 50 + 4 * 50**2, 1.0: 600 + 150 * 100 + 4 * 50**2}


def test_models_of_challenged_clients_that_are_not_drawn_are_estimated() -> None:
    """The detector `challenge` challenges about five clients of the next round for comparison.

    Up to ten clients may be examined, which are challenged, too, and send ten more updates.
    """
    tables = {"name": "t", "data": {"dataset": "digits", "clients": 100}, "model": "logistic"}
    server = {"rule": "median", "customizer": "global_model", "detectors": ["challenge"]}
    few = Experiment.from_tables({**tables, "fraction": 0.1, "server": server})
    none = Experiment.from_tables(
        {**tables, "fraction": 0.1, "server": {**server, "detectors": []}}
    )
    sketches, records = (
        2 * 16 * 1024 * 100,
        estimate(few).record_bytes - estimate(none).record_bytes,
    )
    more = estimate(few).disk_bytes - estimate(none).disk_bytes - sketches - records
    assert more == (2 * (50 + 10) + 10) * 4 * estimate(few).parameters
