"""The key `start` of a model: where the first global model comes from."""

from typing import Any

import pytest

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.start import Start


def experiment(start: Any) -> Experiment:
    model = {"name": "mlp", "hidden": [8], "start": start}
    return Experiment.from_tables({"name": "small", "data": {"dataset": "digits"}, "model": model})


@pytest.mark.parametrize("start", [{"run": "a-1"}, {"run": "a-1", "round": 30}, {"file": "a"}])
def test_start_changes_the_digest_but_not_the_network(start: dict[str, Any]) -> None:
    result = experiment(start)
    assert result.start == Start(**start)
    assert result.network == {"name": "mlp", "hidden": [8]}
    assert result.tables()["model"] == {"name": "mlp", "hidden": [8], "start": start}
    assert Experiment.from_tables(result.tables()) == result
    assert result.client_part()["model"] == result.network
    assert result.digest() != experiment({"file": "b"}).digest()


def test_start_is_none_by_default_and_set_by_started_from() -> None:
    plain = Experiment.load("digits-benign")
    assert plain.start is None and plain.network == plain.model
    started = plain.started_from("first.safetensors")
    assert started.start == Start(file="first.safetensors")
    assert started.network == plain.model


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"fil": "a"}, r"model: start.fil: no such key .did you mean 'file'"),
        ({"run": "A 1"}, "model: start.run: .*should match"),
        ({"run": "a-1", "round": -1}, "model: start.round: .*greater than or equal to 0"),
        ({"file": ""}, "model: start.file: .*at least 1 character"),
        ({"file": "a", "round": 3}, "model: start: `round` can be given only with `run`"),
        ({}, "model: start: give { run = "),
        ({"run": "a-1", "file": "b"}, "model: start: give { run = "),
        ({"round": 3}, "model: start: give { run = "),
        ("a.safetensors", "model: start: .*valid dictionary"),
    ],
)
def test_invalid_starts_are_rejected(start: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        experiment(start)
