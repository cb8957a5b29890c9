"""The sample is seeded and admissible, covers every level, and reports what cannot run."""

from dataclasses import replace

from benchmarks.detection.admissible import refusal
from benchmarks.detection.combinations import (
    FACTORS,
    LONGEST,
    PARTITIONS,
    PASS,
    SAMPLES,
    SIZED,
    UNSEEN,
    Combination,
)
from benchmarks.detection.sample import draw
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import partition_data
from rampart_fl.shared.validation import validate

ONE = Combination("digits", "2 classes", 20, 1.0, 5, "mlp", 60, "fedcap", seed=3)
LEVELS = {**FACTORS, "data_set": ("digits",)}


def no_cnn_on_few(one: Combination) -> str | None:
    """Refuses some combinations without loading data."""
    few = one.network == "cnn" and one.clients == 10
    return f"{one.clients} clients" if few else None


def test_seed_determines_the_sample() -> None:
    first, again, other = (draw(seed, 30, no_cnn_on_few, LEVELS).combinations for seed in (1, 1, 2))
    assert first == again != other
    assert not {one.seed for one in first} & {one.seed for one in other}


def test_every_factor_level_reaches_the_required_count() -> None:
    sample = draw(1, 30, no_cnn_on_few, LEVELS, often=12)
    assert sample.free == 30 < len(sample.combinations)
    assert min(sample.counts(LEVELS).values()) >= 12
    assert not sample.missing


def test_refused_combinations_are_counted_and_excluded() -> None:
    sample = draw(1, 200, no_cnn_on_few, LEVELS)
    assert sample.refused == {"# clients": sample.refused.total()}
    assert sample.refused.total() > 0
    assert not any(no_cnn_on_few(one) for one in sample.combinations)


def test_unreachable_level_is_reported_with_its_reason() -> None:
    sample = draw(1, 5, lambda one: "no" if one.epochs == 5 else None, LEVELS, often=3)
    assert sample.missing == {("epochs", 5): "no"}
    assert all(n >= 3 for key, n in sample.counts(LEVELS).items() if key != ("epochs", 5))


def test_every_admitted_combination_is_a_valid_experiment() -> None:
    sample = draw(5, 10, refusal, LEVELS, often=0)
    for one in sample.combinations:
        experiment = validate(Experiment.from_tables(one.tables()))
        _, parts = partition_data(experiment.data, one.seed)
        sizes = sorted(map(len, parts))
        assert sizes[0] >= 4
        assert one.partition not in SIZED or sizes[-1] >= 100 * sizes[0]


def test_refusal_names_the_violated_requirement() -> None:
    assert "natural clients" in str(refusal(replace(ONE, partition="users")))
    assert "samples" in str(refusal(replace(ONE, partition="sizes 1 to 100", clients=100)))
    assert refusal(ONE) is None


def test_partition_with_sizes_1_to_100_is_admissible_for_some_seed() -> None:
    sized = [replace(ONE, partition="sizes 1 to 100", seed=seed) for seed in range(1, 20)]
    assert any(refusal(one) is None for one in sized)


def test_sample_counts_are_capped_by_training_cost() -> None:
    costly = Combination("mnist", "2 classes", 100, 1.0, 5, "cnn", 100, "fedcap", seed=3)
    cheap = replace(costly, epochs=1, rounds=30, clients=10)
    assert costly.samples < cheap.samples == SAMPLES
    assert cheap.seconds < costly.seconds <= LONGEST
    assert replace(costly, clients=20).samples > costly.samples


def test_cost_and_size_tables_use_only_known_factor_levels() -> None:
    known = (*FACTORS["data_set"], *UNSEEN)
    assert set(PASS) <= {(d, n) for d in known for n in FACTORS["network"]}
    assert not set(UNSEEN) & set(FACTORS["data_set"])
    assert set(SIZED) < set(PARTITIONS)
