"""Which processes a federation on this machine starts for its clients."""

from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.shared.experiment import Experiment


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
