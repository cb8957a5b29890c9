"""`rampart certify`: the table, the line of JSON, the files, and errors."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rampart_fl.services.console.app import app
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.simulation import Simulation, certification

FILE = """
name = "certified"
rounds = 1
[data]
dataset = "digits"
clients = 5
samples = 40
[model]
name = "mlp"
hidden = [6]
[training]
epochs = 1
[server]
customizer = {customizer}
"""


@pytest.fixture
def groups(tmp_path: Path) -> str:
    path = tmp_path / "groups.toml"
    path.write_text(FILE.format(customizer='{ name = "flcert", groups = 5 }'))
    return str(path)


@pytest.fixture
def plain(tmp_path: Path) -> str:
    path = tmp_path / "plain.toml"
    path.write_text(FILE.format(customizer='"global_model"'))
    return str(path)


def certify(*words: str) -> str:
    return CliRunner().invoke(app, ["certify", *words], catch_exceptions=False).stdout


@pytest.mark.slow
def test_certificate_of_groups_is_printed_as_a_table_and_as_json(
    groups: str, tmp_path: Path
) -> None:
    content = json.loads(certify(groups, "--json", "--out", str(tmp_path / "out")))
    assert content["scheme"] == "disjoint groups" and content["clients"] == 5
    assert len(content["curve"]) == content["voters"] // 2 + 1
    assert json.loads((tmp_path / "out" / "certificate.json").read_text()) == content
    assert (tmp_path / "out" / "certificate.png").read_bytes().startswith(b"\x89PNG")
    text = certify(groups)
    for m, share in enumerate(content["curve"]):
        assert f"| {m} | {share:.1%} |" in text


def test_certificate_of_random_subsets_states_its_probability(plain: str) -> None:
    content = json.loads(certify(plain, "--subsets", "9", "--size", "1", "--json"))
    assert (content["scheme"], content["voters"], content["error"]) == ("random subsets", 5, 0.0)
    text = certify(plain, "--subsets", "3", "--size", "3", "--error", "0.2")
    assert "each certificate holds with probability 0.76" in text


@pytest.mark.slow
def test_repeated_command_trains_only_the_missing_models(
    plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [plain, "--subsets", "9", "--size", "1", "--json", "--out", str(tmp_path / "out")]
    first, trained = certify(*words), list[tuple[str, ...]]()
    damaged, missing = sorted((tmp_path / "out/models").rglob("*.safetensors"))[:2]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    missing.unlink()
    train = certification.simulate_clients

    def counted(experiment: Experiment, clients: tuple[str, ...], device: str) -> Simulation:
        trained.append(clients)
        return train(experiment, clients, device)

    monkeypatch.setattr(certification, "simulate_clients", counted)
    assert certify(*words) == first
    assert len(set(trained)) == len(trained) == 2
    certify(*words, "--seed", "2")
    assert len(trained) == 2 + 5


def test_seed_changes_the_certified_experiment(groups: str) -> None:
    first, other = (json.loads(certify(groups, "--json", "--seed", s)) for s in ("1", "2"))
    assert first["experiment_digest"] != other["experiment_digest"]


def test_missing_groups_and_incomplete_options_are_refused(plain: str) -> None:
    with pytest.raises(ConfigurationError, match="no groups that train separately"):
        certify(plain)
    result = CliRunner().invoke(app, ["certify", plain, "--subsets", "3"])
    assert result.exit_code == 2 and "or neither" in result.output


def test_simulate_reports_the_certified_accuracy_of_the_vote(groups: str) -> None:
    words = ["simulate", groups]
    summary = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout.splitlines()[-1])
    assert summary["certified"] == json.loads(certify(groups, "--json"))["curve"]
    text = CliRunner().invoke(app, words).stdout
    assert f"accuracy of the vote {100 * summary['certified'][0]:.1f} %".split() == next(
        line.split() for line in text.splitlines() if line.startswith("accuracy of the vote")
    )
