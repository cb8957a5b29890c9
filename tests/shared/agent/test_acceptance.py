"""A client's policy: each refusal states its reasons, and invalid policy files are rejected."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.shared.agent.acceptance import LONGEST, LONGEST_REASON, OfferAnswer, Policy, decide
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.shipped import shipped
from rampart_fl.shared.experiment.sweep import Sweep

ROOT = Path(__file__).parents[3]


def experiment(**tables: Any) -> Experiment:
    """Eight epochs of an MLP on digits, with FedProx and differential privacy."""
    training = {"epochs": 8, "objective": "fedprox", "privacy": {"noise_multiplier": 1.0}}
    given = {"training": training, "model": "mlp", "data": {"dataset": "digits"}}
    return Experiment.from_tables({"name": "offered", **given, **tables})


@pytest.fixture
def example(tmp_path: Path) -> Policy:
    """The example file of the manual, with the samples that it names."""
    shutil.copy(ROOT / "docs/accept.toml", tmp_path)
    (tmp_path / "my-images.npz").touch()
    return Policy.load(tmp_path / "accept.toml")


def test_client_without_a_policy_file_accepts_every_shipped_experiment() -> None:
    for name in shipped():
        sweep = Sweep.load(name)
        offered = Experiment.load(name) if sweep is None else sweep.base
        assert decide(Policy.load(None), offered) == OfferAnswer(True), name


def test_example_policy_accepts_the_data_sets_that_it_names(
    example: Policy, tmp_path: Path
) -> None:
    assert decide(example, experiment()) == OfferAnswer(True, data_file=None)
    own = decide(example, experiment(data={"dataset": "mnist"}))
    assert own == OfferAnswer(True, data_file=tmp_path / "my-images.npz")


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        (
            {"data": {"dataset": "usps"}},
            "data set 'usps': this client takes part only with digits, mnist",
        ),
        ({"model": "alexnet"}, "model 'alexnet': this client trains only cnn, lenet5, mlp"),
        (
            {"training": {"objective": ["fedprox", "msdfl"], "privacy": {}}},
            "objective term 'msdfl': this client allows only fedprox",
        ),
        (
            {"training": {"epochs": 11, "privacy": {}}},
            "training.epochs is 11: this client trains at most 10",
        ),
        ({"training": {}}, "training.privacy is missing, but this client requires it"),
        (
            {"training": {"privacy": {"noise_multiplier": 0.5}}},
            "training.privacy.noise_multiplier is 0.5: this client needs at least 0.8",
        ),
    ],
)
def test_every_refusal_states_its_reason(
    example: Policy, tables: dict[str, Any], reason: str
) -> None:
    assert decide(example, experiment(**tables)) == OfferAnswer(False, reason)


def test_values_equal_to_the_bounds_are_accepted(example: Policy) -> None:
    training = {"epochs": 10, "privacy": {"noise_multiplier": 0.8}}
    assert decide(example, experiment(training=training)).accept


def test_refusal_lists_all_reasons_within_a_length_limit(example: Policy) -> None:
    answer = decide(example, experiment(model="alexnet", training={"epochs": 11}))
    assert answer.reason.count(";") == 2
    terms = [{"name": "x" * 300} for _ in range(50)]
    flood = decide(Policy(objectives=[]), experiment(training={"objective": terms}))
    assert len(flood.reason) == LONGEST_REASON
    assert "allows only none" in flood.reason


def test_refusal_reveals_no_file_names(example: Policy, tmp_path: Path) -> None:
    answer = decide(example, experiment(data={"dataset": "usps"}, model="alexnet"))
    assert not answer.accept
    assert "npz" not in answer.reason and str(tmp_path) not in answer.reason


def test_model_name_that_is_not_a_string_is_declined(example: Policy) -> None:
    answer = decide(example, experiment(model={"name": ["mlp"]}))
    assert answer.reason == "model ['mlp']: this client trains only cnn, lenet5, mlp"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("most_epoch = 3", r"most_epoch: no such key .did you mean 'most_epochs'"),
        ("most_epochs = 0", "most_epochs: .*greater than or equal to 1"),
        ('most_epochs = "all"', "most_epochs: .*valid integer"),
        ('models = "cnn"', "models: .*valid list"),
        ("models = [3]", "models.0: .*valid string"),
        ('models = [""]', "models.0: .*at least 1 character"),
        ("[privacy]\nnoise = 1", "privacy.noise: no such key"),
        ("[privacy]\nleast_noise = -1", "privacy.least_noise: .*greater than or equal to 0"),
        ("[privacy]\nleast_noise = nan", "privacy.least_noise: .*finite"),
        ("privacy = true", "privacy: .*valid dictionary"),
        ("data = 3", "data: .*valid dictionary"),
        ("[data]\ndigits = 3", "data.digits: .*valid string"),
        ('[data]\ndigits = "no.npz"', 'data.digits must be "slot" or an .npz file that exists'),
        ('[data]\ndigits = "accept.toml"', 'data.digits must be "slot" or an .npz file'),
        ("most_epochs = ", "the file is not TOML"),
        ("a = " + "[" * 5000, "the file is not TOML"),
        ("# " + "x" * LONGEST, f"the file is longer than {LONGEST} bytes"),
    ],
)
def test_invalid_policy_file_is_rejected_with_a_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "accept.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=f"accept.toml: {message}"):
        Policy.load(file)


def test_unreadable_policy_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the file cannot be read: No such file"):
        Policy.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"bytes\.toml: the file is not TOML"):
        Policy.load(tmp_path / "bytes.toml")
