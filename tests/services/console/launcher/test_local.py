"""Which processes a federation on this machine starts for its clients."""

import tomllib
from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.local import LocalFederation, to_toml
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.shipped import find, shipped


@pytest.mark.parametrize(("per_process", "sizes"), [(10, [10, 4, 6]), (4, [4, 4, 4, 2, 4, 2])])
def test_clients_of_a_role_are_packed_into_full_processes(
    tmp_path: Path, per_process: int, sizes: list[int]
) -> None:
    """Attackers' slots lie between honest slots, and no role needs a further process for this."""
    experiment = Experiment.load("digits-sign-flip")
    federation = LocalFederation(experiment, tmp_path, per_process)
    groups = federation.clients.groups().values()
    federation.stop()
    assert [len(slots) for _, slots in groups] == sizes
    assert sorted(slot for _, slots in groups for slot in slots) == list(range(20))
    for role, slots in groups:
        assert all(experiment.roles[slot] is role for slot in slots)


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
