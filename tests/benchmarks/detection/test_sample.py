"""The sample: seeded, admissible, with every level often enough; what cannot be run is told."""

from dataclasses import replace

from benchmarks.detection.admissible import refusal
from benchmarks.detection.combinations import (
    FACTORS,
    LONGEST,
    PARTITIONS,
    PASS,
    SAMPLES,
    SIZED,
    Combination,
)
from benchmarks.detection.sample import draw
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import partition_data
from rampart_fl.shared.validation import validate

ONE = Combination("digits", "2 classes", 20, 1.0, 5, "mlp", 60, "fedcap", seed=3)
LEVELS = {**FACTORS, "data_set": ("digits",)}


def no_cnn_on_few(one: Combination) -> str | None:
    """A refusal that needs no data."""
    few = one.network == "cnn" and one.clients == 10
    return f"{one.clients} clients" if few else None


def test_the_seed_decides() -> None:
    first, again, other = (draw(seed, 30, no_cnn_on_few, LEVELS).combinations for seed in (1, 1, 2))
    assert first == again != other
    assert not {one.seed for one in first} & {one.seed for one in other}


def test_every_level_occurs_often_enough() -> None:
    sample = draw(1, 30, no_cnn_on_few, LEVELS, often=12)
    assert sample.free == 30 < len(sample.combinations)
    assert min(sample.counts(LEVELS).values()) >= 12
    assert not sample.missing


def test_what_is_refused_is_counted_and_left_out() -> None:
    sample = draw(1, 200, no_cnn_on_few, LEVELS)
    assert sample.refused == {"# clients": sample.refused.total()}
    assert sample.refused.total() > 0
    assert not any(no_cnn_on_few(one) for one in sample.combinations)


def test_a_level_that_cannot_be_had_is_told() -> None:
    sample = draw(1, 5, lambda one: "no" if one.epochs == 5 else None, LEVELS, often=3)
    assert sample.missing == {("epochs", 5): "no"}
    assert all(n >= 3 for key, n in sample.counts(LEVELS).items() if key != ("epochs", 5))


def test_every_combination_that_is_admitted_can_be_run() -> None:
    sample = draw(5, 10, refusal, LEVELS, often=0)
    for one in sample.combinations:
        experiment = validate(Experiment.from_tables(one.tables()))
        _, parts = partition_data(experiment.data, one.seed)
        sizes = sorted(map(len, parts))
        assert sizes[0] >= 4
        assert one.partition not in SIZED or sizes[-1] >= 100 * sizes[0]


def test_reasons_name_what_is_wrong() -> None:
    assert "natural clients" in str(refusal(replace(ONE, partition="users")))
    assert "samples" in str(refusal(replace(ONE, partition="sizes 1 to 100", clients=100)))
    assert refusal(ONE) is None


def test_sizes_range_over_two_orders_of_magnitude() -> None:
    sized = [replace(ONE, partition="sizes 1 to 100", seed=seed) for seed in range(1, 20)]
    assert any(refusal(one) is None for one in sized)


def test_samples_are_capped_by_cost() -> None:
    costly = Combination("mnist", "2 classes", 100, 1.0, 5, "cnn", 100, "fedcap", seed=3)
    cheap = replace(costly, epochs=1, rounds=30, clients=10)
    assert costly.samples < cheap.samples == SAMPLES
    assert cheap.seconds < costly.seconds <= LONGEST
    assert replace(costly, clients=20).samples > costly.samples


def test_factors_are_the_members_they_name() -> None:
    assert set(PASS) <= {(d, n) for d in FACTORS["data_set"] for n in FACTORS["network"]}
    assert set(SIZED) < set(PARTITIONS)
