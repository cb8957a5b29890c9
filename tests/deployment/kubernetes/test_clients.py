"""Clients, their tokens and the experiment agree with each other."""

import importlib.util
import json
from itertools import chain
from typing import Any

import pytest

from rampart_fl.services.console.join_tokens import shares
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.ranges import parse_lists
from rampart_fl.shared.validation import validate


@pytest.fixture
def groups(manifests: Any) -> dict[str, str]:
    """The lists of slots of each group's pods, as in the job's settings."""
    told = manifests.variables(manifests.pod("join-tokens"))["RAMPART_GROUPS"]
    return dict(json.loads(told))


@pytest.fixture
def experiment(manifests: Any) -> Experiment:
    """The experiment from which the worker creates the federation."""
    return validate(Experiment.parse(manifests.data("ConfigMap", "experiment")["experiment.toml"]))


def test_every_client_of_the_experiment_has_a_pod_of_its_role(
    groups: dict[str, str], experiment: Experiment
) -> None:
    roles = experiment.roles
    hosted = {group: [*chain(*parse_lists(text))] for group, text in groups.items()}
    assert hosted["agents"] == [slot for slot, role in enumerate(roles) if role is None]
    hostile = [slot for slot, role in enumerate(roles) if role is not None]
    assert hosted.get("attackers", []) == hostile
    assert sorted(chain(*hosted.values())) == list(range(experiment.data.clients))


def test_groups_are_stateful_sets(manifests: Any, groups: dict[str, str]) -> None:
    for group, lists in groups.items():
        variables = manifests.variables(manifests.pod(group))
        pods = len(parse_lists(lists))
        assert manifests.named("StatefulSet", group)["spec"]["replicas"] == pods
        assert variables["RAMPART_SLOTS"] == lists
        by_index = {
            variable["name"]
            for variable in manifests.pod(group).container["env"]
            if "pod-index" in json.dumps(variable)
        }
        assert by_index == ({"RAMPART_ORDINAL"} if pods > 1 else set())


def test_every_pod_finds_its_own_key(manifests: Any, groups: dict[str, str]) -> None:
    job = manifests.variables(manifests.pod("join-tokens"))
    pods = {
        f"{group}-{n}" for group, lists in groups.items() for n in range(len(parse_lists(lists)))
    }
    assert set(shares(groups)) == pods
    for group in groups:
        pod = manifests.pod(group)
        (volume,) = [v for v in pod.spec["volumes"] if v["name"] == "join-tokens"]
        assert volume["secret"]["secretName"] == job["RAMPART_TOKENS_SECRET"]
        (mount,) = [m for m in pod.container["volumeMounts"] if m["name"] == "join-tokens"]
        assert mount["subPathExpr"] == "$(POD_NAME)"
        names = {variable["name"]: variable.get("valueFrom") for variable in pod.container["env"]}
        assert names["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}} or (
            names["POD_NAME"]["fieldRef"]["fieldPath"] == "metadata.name"
        )


def test_the_job_runs_a_module(manifests: Any) -> None:
    command = manifests.pod("join-tokens").container["command"]
    assert command[:2] == ["python", "-m"]
    assert importlib.util.find_spec(command[2]) is not None


def test_attackers_know_each_other(
    manifests: Any, groups: dict[str, str], experiment: Experiment
) -> None:
    if "attackers" not in groups:
        assert not experiment.attackers
        return
    count = sum(map(len, parse_lists(groups["attackers"])))
    lies = manifests.variables(manifests.pod("attackers"))
    cohort = manifests.variables(manifests.pod("cohort"))
    assert int(lies["RAMPART_MEMBERS"]) == int(cohort["RAMPART_COHORT_MEMBERS"]) == count
    assert experiment.attackers[0].attack == {"name": lies["RAMPART_ATTACK"]}
    assert manifests.secret_files(manifests.pod("attackers")) == {"rampart_cohort_token"}
    assert manifests.secret_files(manifests.pod("cohort")) == {"rampart_cohort_token"}
