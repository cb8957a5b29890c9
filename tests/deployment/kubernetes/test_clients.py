"""The pods of the clients, their tokens and the experiment agree."""

import json
import os
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.join_tokens import shares
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.ranges import parse_lists
from rampart_fl.shared.validation import validate
from tests.deployment.conftest import image_of
from tests.deployment.kubernetes.conftest import NO_SERVICE


@pytest.fixture
def groups(manifests: Any) -> dict[str, str]:
    """The lists of slots of each group's pods, as in the job's settings."""
    groups = manifests.variables(manifests.pod("join-tokens"))["RAMPART_GROUPS"]
    return dict(json.loads(groups))


@pytest.fixture
def experiment(manifests: Any) -> Experiment:
    """The experiment from which the worker creates the federation."""
    return validate(Experiment.parse(manifests.data("rampart-experiment")["experiment.toml"]))


def test_every_client_of_the_experiment_has_a_pod_of_its_role(
    groups: dict[str, str], experiment: Experiment
) -> None:
    roles = experiment.roles
    hosted = {group: [*chain(*parse_lists(text))] for group, text in groups.items()}
    assert hosted["rampart-agents"] == [slot for slot, role in enumerate(roles) if role is None]
    hostile = [slot for slot, role in enumerate(roles) if role is not None]
    assert hosted.get("rampart-attackers", []) == hostile
    assert sorted(chain(*hosted.values())) == list(range(experiment.data.clients))


def test_every_group_is_a_stateful_set_with_a_pod_per_slot_list(
    manifests: Any, groups: dict[str, str]
) -> None:
    for group, lists in groups.items():
        owner = manifests.named("StatefulSet", group)
        assert owner["spec"]["replicas"] == len(parse_lists(lists))
        # Pods start together: with OrderedReady, one that waits would block all later ones.
        assert owner["spec"]["podManagementPolicy"] == "Parallel"
        variables = manifests.variables(manifests.pod(group.removeprefix("rampart-")))
        assert variables["RAMPART_SLOTS"] == lists
        assert variables["RAMPART_ORDINAL"] == "0"


def test_every_pod_mounts_only_its_own_join_tokens(manifests: Any, groups: dict[str, str]) -> None:
    job = manifests.variables(manifests.pod("join-tokens"))
    pods = {
        f"{group}-{n}" for group, lists in groups.items() for n in range(len(parse_lists(lists)))
    }
    assert set(shares(groups)) == pods
    for group in groups:
        pod = manifests.pod(group.removeprefix("rampart-"))
        (volume,) = [v for v in pod.spec["volumes"] if v["name"] == "join-tokens"]
        assert volume["secret"]["secretName"] == job["RAMPART_TOKENS_SECRET"]
        (mount,) = [m for m in pod.container["volumeMounts"] if m["name"] == "join-tokens"]
        assert mount["subPathExpr"] == "$(POD_NAME)"
        # Only a shell that waits sees the other pods' keys, and it ends before the clients start.
        whole = [
            one
            for one in pod.containers
            for m in one["volumeMounts"]
            if m["name"] == "join-tokens" and "subPathExpr" not in m
        ]
        assert whole == pod.spec["initContainers"]
        assert whole[0]["command"][:2] == ["sh", "-ec"]
        assert "restartPolicy" not in whole[0]
        names = {variable["name"]: variable.get("valueFrom") for variable in pod.container["env"]}
        assert names["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.processes
def test_pods_wait_for_their_join_tokens(
    manifests: Any, groups: dict[str, str], tmp_path: Path
) -> None:
    for group in groups:
        pod = manifests.pod(group.removeprefix("rampart-"))
        (first,) = pod.spec["initContainers"]
        (volume,) = [v for v in pod.spec["volumes"] if v["name"] == "join-tokens"]
        # The volume is there before the Secret; the variable makes the kubelet look for it.
        assert volume["secret"]["optional"] is True
        (needed,) = [one["valueFrom"] for one in first["env"] if one["name"] == "MADE"]
        assert needed["secretKeyRef"] == {
            "name": volume["secret"]["secretName"],
            "key": f"{group}-0",
        }
        script = first["command"][-1].replace("/run/secrets/join-tokens", str(tmp_path / group))
        assert "sleep 1;" in script
        script = script.replace("sleep 1;", "sleep 0.01;")
        command = [*first["command"][:-1], script]
        waiting = subprocess.Popen(command, env={**os.environ, "POD_NAME": f"{group}-1"})
        (tmp_path / group).mkdir()
        (tmp_path / group / f"{group}-0").write_text("somebody else's\n")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.1)
        (tmp_path / group / f"{group}-1").write_text("token\n")
        assert waiting.wait(10) == 0


def test_every_container_runs_an_image_that_fits_its_command(manifests: Any) -> None:
    for pod in manifests.pods:
        if pod.component in NO_SERVICE:
            continue
        needed = image_of(pod.container["command"], manifests.variables(pod))
        for container in pod.containers:
            repository, _, tag = container["image"].rpartition(":")
            assert repository.rpartition("/")[2] == "rampart"
            assert tag.endswith(f"-{needed}")


def test_attackers_cohort_and_experiment_agree(
    manifests: Any, groups: dict[str, str], experiment: Experiment
) -> None:
    if "rampart-attackers" not in groups:
        assert not experiment.attackers
        return
    count = sum(map(len, parse_lists(groups["rampart-attackers"])))
    lies = manifests.variables(manifests.pod("attackers"))
    cohort = manifests.variables(manifests.pod("cohort"))
    assert int(lies["RAMPART_MEMBERS"]) == int(cohort["RAMPART_COHORT_MEMBERS"]) == count
    assert experiment.attackers[0].attack == {"name": lies["RAMPART_ATTACK"]}
    assert manifests.secret_files(manifests.pod("attackers")) == {"rampart_cohort_token"}
    assert manifests.secret_files(manifests.pod("cohort")) == {"rampart_cohort_token"}
