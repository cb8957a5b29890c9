"""Members from other installed packages: found by entry points, checked against their package."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from rampart_fl.shared.agent.learning_client import client_experiment
from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families import plugins
from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.partitions import partitions
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.training.objectives import objectives
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.learning.training.schedules import schedules
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.validation import validate
from tests.conftest import ForgetMembers

FAMILIES: list[Registry] = [
    *(rules, preaggregators, detectors, customizers, model_attacks, data_attacks),
    *(datasets, partitions, models, personalizers, objectives, schedules),
]
RULE = """
import torch
from rampart_fl.shared.robust.base import Report, Rule

class Midrange(Rule):
    def apply(self, rows, state, context):
        middle = [(chunk_MC.amin(0) + chunk_MC.amax(0)) / 2 for _, _, chunk_MC in rows.chunks()]
        return torch.cat(middle), state, Report(self.name, rows.ids)

def made(): ...
"""
SCHEDULE = """
from rampart_fl.shared.learning.training.schedules import Schedule, schedules

@schedules.register("halving")
class Halving(Schedule):
    def share(self, round_, rounds):
        return 0.5**round_
"""
MEMBER = """
from {module} import {base}

made = []

class Own({base}):
    def model_post_init(self, context):
        super().model_post_init(context)
        made.append(self)
"""
"""The code of a member that behaves like one of Rampart's members, and records its objects."""
ROBUST, LEARNING = "rampart_fl.shared.robust", "rampart_fl.shared.learning"
ATTACKS = "rampart_fl.shared.attacks"
OWN: dict[str, tuple[str, str, dict[str, object]]] = {
    "rules": (f"{ROBUST}.rules.median", "Median", {"server": {"rule": "own"}}),
    "preaggregators": (
        *(f"{ROBUST}.preaggregators.nnm", "NearestNeighbourMixing"),
        {"server": {"rule": ["own", "median"], "f": 2}},
    ),
    "detectors": (
        *(f"{ROBUST}.detectors.norm_bound", "NormBound"),
        {"server": {"detectors": ["own"]}},
    ),
    "customizers": (
        *(f"{ROBUST}.customizers.global_model", "GlobalModel"),
        {"server": {"customizer": "own"}},
    ),
    "model_attacks": (
        *(f"{ATTACKS}.model.sign_flip", "SignFlip"),
        {"attackers": [{"count": 1, "attack": "own"}]},
    ),
    "data_attacks": (
        *(f"{ATTACKS}.data.pair_flip", "PairFlip"),
        {"attackers": [{"count": 1, "data_attack": "own"}]},
    ),
    "datasets": (
        *(f"{LEARNING}.data.datasets.digits", "Digits"),
        {"data": {"dataset": "own", "clients": 4}},
    ),
    "partitions": (
        *(f"{LEARNING}.data.partitions.iid", "IID"),
        {"data": {"dataset": "digits", "partition": "own", "clients": 4}},
    ),
    "models": (f"{LEARNING}.network.models.mlp", "MLP", {"model": {"name": "own"}}),
    "personalizers": (
        *(f"{LEARNING}.training.personalizers.ditto", "Ditto"),
        {"personalizer": "own"},
    ),
    "objectives": (
        *(f"{LEARNING}.training.objectives.fedprox", "FedProx"),
        {"training": {"objective": "own"}},
    ),
    "schedules": (
        *(f"{LEARNING}.training.schedules.step", "Step"),
        {"training": {"schedule": {"name": "own", "every": 2}}},
    ),
}
"""For each group of entry points: a member's module and class, and the tables that name `own`."""
Install = Callable[..., None]


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_members: ForgetMembers
) -> Iterator[Install]:
    """Installs a package as pip does: a module, and metadata with its entry points."""
    for family in FAMILIES:
        forget_members(family)
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(package: str, version: str, code: str, **entries: str) -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        metadata = tmp_path / f"{module}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
        lines = [f"[rampart_fl.{group}]\n{entry}\n" for group, entry in entries.items()]
        (metadata / "entry_points.txt").write_text("".join(lines))
        plugins.installed.cache_clear()

    yield put
    plugins.installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def midrange(install: Install, package: str = "my-rules", version: str = "1.2") -> None:
    """Installs a package with a rule."""
    module = package.replace("-", "_")
    install(package, version, RULE, rules=f"midrange = {module}:Midrange")


def experiment(**tables: object) -> Experiment:
    """The benign digits experiment with other tables."""
    return Experiment.from_tables({**Experiment.load("digits-benign").tables(), **tables})


def test_every_family_has_its_own_entry_point_group() -> None:
    groups = {family.group for family in FAMILIES}
    assert len(groups) == len(FAMILIES)
    assert groups == {f"rampart_fl.{group}" for group in OWN}


def test_rule_from_a_package_is_found_by_name(install: Install) -> None:
    midrange(install)
    assert "midrange" in rules.names() and "my_rules" not in sys.modules
    updates_ND = torch.tensor([[0.0, 3.0], [4.0, 5.0], [1.0, 4.0]])
    assert aggregate(updates_ND, "midrange").tolist() == [2.0, 4.0]
    assert rules.get("midrange").package == "my-rules==1.2"
    assert rules.get("median").package == ""


def test_member_with_an_entry_point_may_also_register_itself(install: Install) -> None:
    install("my-pace", "0.1", SCHEDULE, schedules="halving = my_pace:Halving")
    assert schedules.build("halving").share(2, 10) == 0.25
    assert schedules.get("halving").package == "my-pace==0.1"


def test_validated_experiment_lists_the_packages_of_its_members(install: Install) -> None:
    midrange(install)
    nested = {"name": "clustered", "rule": "midrange"}
    plain = validate(experiment())
    assert plain.packages == {}
    for server in ({"rule": "midrange"}, {"customizer": nested}):
        checked = validate(experiment(server=server))
        assert checked.packages == {"midrange": "my-rules==1.2"}
        assert Experiment.from_tables(checked.tables()) == checked
        assert checked.client_part()["packages"] == {}, "clients do not learn the server's rule"


@pytest.mark.parametrize("group", OWN)
def test_experiment_is_built_with_a_users_member_of_each_family(
    install: Install, group: str
) -> None:
    module, base, tables = OWN[group]
    install("my-own", "1", MEMBER.format(module=module, base=base), **{group: "own = my_own:Own"})
    checked = validate(experiment(**tables))
    assert checked.packages == {"own": "my-own==1"}
    made = sys.modules["my_own"].made
    assert made and {own.name for own in made} == {"own"}
    assert Experiment.from_tables(checked.tables()) == checked


@pytest.mark.parametrize("stages", ["midrange", ["nnm", "midrange"]])
def test_missing_package_is_named_with_its_version(stages: object) -> None:
    wanted = experiment(server={"rule": stages}, packages={"midrange": "my-rules==1.2"})
    for build in (validate, build_plan):
        with pytest.raises(
            UnknownMember, match=r"'midrange' comes from my-rules==1.2, which is not"
        ):
            build(wanted)


def test_client_part_lists_only_the_packages_that_clients_need(install: Install) -> None:
    midrange(install)
    install("my-pace", "0.1", SCHEDULE, schedules="halving = my_pace:Halving")
    wanted = validate(experiment(server={"rule": "midrange"}, training={"schedule": "halving"}))
    assert wanted.packages == {"midrange": "my-rules==1.2", "halving": "my-pace==0.1"}
    assert client_experiment(wanted.client_part()).packages == {"halving": "my-pace==0.1"}


def test_unknown_name_without_a_package_lists_the_known_names() -> None:
    with pytest.raises(UnknownMember, match=r"unknown stage 'midrange'.*known: .*median"):
        validate(experiment(server={"rule": "midrange"}))


def test_member_of_a_different_package_is_rejected_but_not_a_newer_version(
    install: Install,
) -> None:
    midrange(install, "my-other-rules", "3.0")
    server = {"rule": "midrange"}
    wanted = experiment(server=server, packages={"midrange": "my-rules==1.2"})
    with pytest.raises(
        ConfigurationError,
        match=r"from my-rules==1.2, but on this machine my-other-rules==",
    ):
        validate(wanted)
    newer = experiment(server=server, packages={"midrange": "my-other-rules==2.9"})
    assert validate(newer).packages == {"midrange": "my-other-rules==3.0"}


def test_name_in_two_packages_is_rejected(install: Install) -> None:
    midrange(install)
    midrange(install, "my-other-rules", "3.0")
    with pytest.raises(ConfigurationError, match=r"my-other-rules==3.0 and my-rules==1.2"):
        rules.get("midrange")


def test_same_name_from_two_packages_in_two_families_is_rejected(install: Install) -> None:
    """The experiment's `packages` has one entry per name, so it could name only one of them."""
    midrange(install)
    install("my-pace", "0.1", SCHEDULE, schedules="midrange = my_pace:Halving")
    wanted = experiment(server={"rule": "midrange"}, training={"schedule": "midrange"})
    with pytest.raises(ConfigurationError, match=r"'midrange' from two packages, my-.* and my-"):
        validate(wanted)
    both = RULE + SCHEDULE.replace('@schedules.register("halving")', "")
    install("my-own", "1", both, rules="own = my_own:Midrange", schedules="own = my_own:Halving")
    wanted = experiment(server={"rule": "own"}, training={"schedule": "own"})
    assert validate(wanted).packages == {"own": "my-own==1"}


def test_package_cannot_replace_a_built_in_member(install: Install) -> None:
    install("my-rules", "1.2", RULE, rules="median = my_rules:Midrange")
    with pytest.raises(
        ConfigurationError, match=r"'median' of my-rules==1.2 has the same name as one"
    ):
        rules.get("median")
    assert rules.get("krum").package == ""


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("my_rules:Absent", "cannot be imported from my_rules:Absent: AttributeError"),
        ("my_away:Midrange", "cannot be imported from my_away:Midrange: ModuleNotFoundError"),
        ("my_rules:made", "my_rules:made is not a subclass of Rule"),
        ("my_rules:torch.nn.ReLU", "is not a subclass of Rule"),
    ],
)
def test_broken_entry_point_is_named_with_its_package(
    install: Install, target: str, problem: str
) -> None:
    install("my-rules", "1.2", RULE, rules=f"midrange = {target}")
    with pytest.raises(ConfigurationError, match=problem) as caught:
        rules.get("midrange")
    assert "my-rules==1.2" in str(caught.value)


def test_errors_of_a_users_member_name_the_member(install: Install) -> None:
    code = RULE.replace("        middle", "        raise IndexError('row 9')\n        middle")
    install("my-rules", "1.2", code, rules="midrange = my_rules:Midrange")
    experiment = Experiment.load("digits-benign").tables()
    experiment["server"] = {"rule": "midrange"}
    with pytest.raises(
        ConfigurationError, match=r"IndexError: row 9 \(raised by 'midrange' of my-rules==1.2\)"
    ):
        validate(Experiment.from_tables(experiment))


def test_member_without_its_methods_is_refused(install: Install) -> None:
    code = RULE.replace("def apply", "def aply")
    install("my-rules", "1.2", code, rules="midrange = my_rules:Midrange")
    with pytest.raises(ConfigurationError, match=r"my-rules==1.2: my_rules:Midrange lacks apply"):
        rules.build("midrange")
