"""Experiments are written as TOML that reads back as the same experiment."""

import tomllib

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.shipped import find, shipped
from rampart_fl.shared.experiment.toml import to_toml


@pytest.mark.parametrize(
    "tables",
    [
        {"plain": 1, "with space": {"a.b": 2, "ärger": [0.5, float("inf")], 'quo"te': "x\ny"}},
        {"": "empty", "list": [{"k e y": True}, {"other": []}]},
    ],
)
def test_toml_keys_and_values_are_quoted_where_necessary(tables: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(tables)) == tables


def test_shipped_experiments_keep_their_digest_when_written_as_toml() -> None:
    files = [tomllib.loads(find(name).read_text()) for name in shipped()]
    experiments = [Experiment.from_tables(tables) for tables in files if "sweep" not in tables]
    assert len(experiments) > 30
    for experiment in experiments:
        assert Experiment.parse(to_toml(experiment.tables())).digest() == experiment.digest()
