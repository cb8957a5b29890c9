"""Experiment files: shipped files are valid, errors name the key; digests, spans and roles."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.experiment.phases import Span
from rampart_fl.shared.experiment.schema import Experiment, Table
from rampart_fl.shared.experiment.shipped import SHIPPED, find, shipped
from rampart_fl.shared.experiment.sweep import Sweep
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.network.vector import build_module, flatten
from rampart_fl.shared.validation import validate

SMALL: dict[str, Any] = {"name": "small", "data": {"dataset": "digits"}, "model": "mlp"}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The small experiment's tables with one more setting."""
    tables: dict[str, Any] = json.loads(json.dumps(SMALL))
    *tops, last = path.split(".")
    at = tables
    for top in tops:
        at = at.setdefault(top, {})
    at[last] = value
    return tables


@pytest.mark.parametrize("name", shipped())
@pytest.mark.slow
def test_shipped_experiments_are_valid_and_survive_a_round_trip(name: str) -> None:
    sweep = Sweep.load(name)
    experiment = Experiment.load(name) if sweep is None else sweep.base
    assert experiment.name == name
    assert experiment.description
    assert validate(experiment) == experiment
    plan = build_plan(experiment)
    model_D = flatten(build_module(experiment))
    assert model_D.isfinite().all()
    plan.init(len(model_D))
    assert datasets.parse(experiment.data.dataset).classes > 0
    assert len(experiment.roles) == len(experiment.client_names) == experiment.data.clients
    # The written tables are read back as the same experiment.
    again = Experiment.from_tables(json.loads(json.dumps(experiment.tables())))
    assert again == experiment
    assert again.digest() == experiment.digest()


def test_shipped_experiments_set_f_to_their_attackers_and_bound_evictions() -> None:
    for name in shipped():
        sweep = Sweep.load(name)
        experiment = Experiment.load(name) if sweep is None else sweep.base
        hostile = sum(group.count for group in experiment.attackers)
        assert not hostile or experiment.server.f == hostile, name
        papers = any(detector["name"] == "norm_bound" for detector in experiment.server.detectors)
        assert experiment.server.eviction.bounded == (not papers), name


def test_experiments_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert "digits-benign" in shipped()
    file = tmp_path / "own.toml"
    file.write_text((SHIPPED / "digits-benign.toml").read_text())
    assert find(file) == file
    assert Experiment.load(file) == Experiment.load(str(file)) == Experiment.load("digits-benign")
    with pytest.raises(UnknownMember, match="did you mean 'digits-benign'") as unknown:
        Experiment.load("digits-bening")
    listed, rest = str(unknown.value).partition("; known: ")[2].split(" and ")
    assert "digits-benign" in listed.split(", ") == sorted(listed.split(", "))
    assert len(listed.split(", ")) + int(rest.removesuffix(" more")) == len(shipped())
    assert len(str(unknown.value)) < 300
    for missing in (file.with_name("missing.toml"), file.with_name("missing"), "missing.toml"):
        with pytest.raises(ConfigurationError, match=f"^no file {missing}$"):
            Experiment.load(missing)
    with pytest.raises(ConfigurationError, match=f"^{tmp_path} is a folder$"):
        Experiment.load(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("rouns", 3, "rouns: no such key .did you mean 'rounds'"),
        ("data.client", 3, "data.client: no such key .did you mean 'clients'"),
        ("training.lr", 0.1, "training.lr: no such key"),
        (
            "server.detector",
            ["norm_bound"],
            "server.detector: no such key .did you mean 'detectors'",
        ),
        ("phases.collecting.count", {"least": 1}, "phases.collecting.count.least: no such key"),
        (
            "attackers",
            [{"count": 1, "atack": "lie"}],
            r"attackers.0.atack: no such key .did you mean 'attack'",
        ),
        ("training.privacy", {"noise": 1}, "training.privacy.noise: no such key"),
        (
            "server.root",
            {"dataset": "mnist", "sise": 3},
            "root.sise: no such key .did you mean 'size'",
        ),
        ("name", "Upper Case", "name: String should match"),
        ("rounds", 0, "rounds: .*greater than or equal to 1"),
        ("seed", -1, "seed: .*greater than or equal to 0"),
        ("seed", 2**31, "seed: .*less than"),
        ("fraction", 0, "fraction: .*greater than 0"),
        ("fraction", 1.5, "fraction: .*less than or equal to 1"),
        ("policy", "asynchronous", "policy: .*'sync' or 'buffered'"),
        ("data.clients", 0, "data.clients: .*greater than or equal to 1"),
        ("data.test_fraction", 1, "data.test_fraction: .*less than 1"),
        ("data.samples", 1, "data.samples: .*greater than or equal to 2"),
        ("data.reserved", -1, "data.reserved: .*greater than or equal to 0"),
        ("training.learning_rate", 0, "training.learning_rate: .*greater than 0"),
        ("training.learning_rate", float("nan"), "training.learning_rate: .*finite number"),
        ("training.momentum", 1, "training.momentum: .*less than 1"),
        ("training.epochs", True, "training.epochs: true is not a number"),
        ("training.momentum", False, "training.momentum: false is not a number"),
        ("server.f", True, "server.f: true is not a number"),
        (
            "attackers",
            [{"count": 1, "attack": {"name": "ipm", "epsilon": float("nan")}}],
            "attackers.0.attack: epsilon: nan is not a finite number",
        ),
        (
            "server.rule",
            [{"name": "x", "bounds": [{"most": float("-inf")}]}],
            "server.rule.0: bounds.0.most: -inf is not a finite number",
        ),
        (
            "phases.collecting.count",
            {"min": 30},
            "phases.collecting.count.min is 30, but only 20 clients",
        ),
        ("server.f", -1, "server.f: .*greater than or equal to 0"),
        ("phases.collecting.time", {"min": 5, "max": 2}, "min 5 is above max 2"),
        ("data.clients", "many", "data.clients: .*valid integer"),
        ("model", 3, "model: Input should be a valid dictionary"),
        ("attackers", [{"count": 12}, {"count": 8}], "20 attackers, but only 20 clients"),
        ("sweep", {"rounds": [1, 2]}, "use rampart simulate"),
    ],
)
def test_invalid_keys_and_values_are_rejected_and_named(
    path: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Experiment.from_tables(changed(path, value))


@pytest.mark.parametrize("key", ["name", "data", "model", "data.dataset"])
def test_missing_required_keys_are_rejected(key: str) -> None:
    tables = changed("seed", 1)
    at, last = (tables["data"], "dataset") if "." in key else (tables, key)
    del at[last]
    with pytest.raises(ConfigurationError, match=f"{key}: Field required"):
        Experiment.from_tables(tables)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("data.dataset", "digit", "unknown data set 'digit' .did you mean 'digits'"),
        ("data.partition", "idd", "unknown partition 'idd' .did you mean 'iid'"),
        (
            "data.partition",
            {"name": "dirichlet", "beta": 0},
            "partition 'dirichlet': beta: .*greater than 0",
        ),
        ("model", "cn", "unknown model 'cn'"),
        (
            "model",
            {"name": "mlp", "depth": 3},
            "model 'mlp': depth: no such key; parameters: hidden",
        ),
        ("model", {"hidden": [3]}, "a model needs a name; known: "),
        ("personalizer", "dito", "unknown personalizer 'dito' .did you mean 'ditto'"),
        ("server.rule", "medain", "unknown stage 'medain' .did you mean 'median'"),
        ("server.rule", ["nnn", "median"], "unknown stage 'nnn' .did you mean 'nnm'"),
        ("server.rule", {"name": "krum", "m": 2}, "rule 'krum': m: no such key"),
        ("server.detectors", ["norm_bond"], "unknown detector 'norm_bond'"),
        ("server.customizer", "fedcab", "unknown customizer 'fedcab' .did you mean 'fedcap'"),
        ("evaluation.trigger", "dbb", "unknown .* 'dbb'"),
        ("attackers", [{"count": 1, "attack": "lei"}], "unknown .*attack 'lei'"),
        ("attackers", [{"count": 1, "data_attack": "flip"}], "unknown data attack 'flip'"),
    ],
)
def test_validation_rejects_unknown_members_and_parameters(
    path: str, value: Any, message: str
) -> None:
    experiment = Experiment.from_tables(changed(path, value))
    with pytest.raises(ConfigurationError, match=message):
        validate(experiment)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (
            "server.customizer",
            "fedcap",
            "with the customizer fedcap, clients start from other models",
        ),
        ("server.customizer", "clustered", "with the customizer clustered, clients start"),
        ("personalizer", "fedper", "the personalizer fedper does not upload"),
        ("personalizer", "local", "the personalizer local does not upload"),
    ],
)
def test_fedredefense_is_rejected_unless_uploads_start_from_the_global_model(
    path: str, value: str, reason: str
) -> None:
    tables = changed(path, value)
    tables.setdefault("server", {})["detectors"] = ["fedredefense"]
    with pytest.raises(ConfigurationError, match=f"fedredefense reconstructs training.*{reason}"):
        validate(Experiment.from_tables(tables))


@pytest.mark.parametrize("personalizer", ["none", "ditto", "fedcap", "apfl", "fine_tune"])
def test_fedredefense_is_allowed_with_personal_models(personalizer: str) -> None:
    tables = changed("personalizer", personalizer)
    tables["server"] = {"detectors": ["fedredefense"]}
    assert validate(Experiment.from_tables(tables))


def test_error_messages_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("rounds = \n")
    with pytest.raises(ConfigurationError, match=r"own\.toml: not a TOML file"):
        Experiment.load(file)
    file.write_text("rounds = 3\n")
    with pytest.raises(ConfigurationError, match=r"own\.toml: .*name: Field required"):
        Experiment.load(file)


@pytest.mark.parametrize("load", [Experiment.load, Sweep.load])
def test_a_file_in_latin_1_is_refused(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(b'name = "one"  # Universit\xe9\n')
    with pytest.raises(ConfigurationError, match=r"own\.toml: not a TOML file: 'utf-8' codec"):
        load(file)


@pytest.mark.processes
def test_a_file_in_utf_8_is_read_in_every_locale(tmp_path: Path) -> None:
    files = [tmp_path / "own.toml", tmp_path / "sweep.toml"]
    for file, name in zip(files, ["digits-benign", "mean-estimation-sweep"], strict=True):
        text = find(name).read_text(encoding="utf-8")
        file.write_text(f"# Université\n{text}", encoding="utf-8")
    source = (
        "import sys; from rampart_fl.shared.experiment import Experiment;"
        "from rampart_fl.shared.experiment.sweep import Sweep;"
        "Experiment.load(sys.argv[1]); assert Sweep.load(sys.argv[2]) is not None"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", source, *map(str, files)]
    subprocess.run(command, env={**os.environ, **locale}, check=True, timeout=60)


def test_a_round_can_wait_for_all_clients_that_may_join() -> None:
    phases: dict[str, Any] = {"joining": {"clients": 30}, "collecting": {"count": {"min": 30}}}
    assert Experiment.from_tables({**SMALL, "phases": phases}).most_clients == 30
    phases["joining"]["clients"] = 29
    with pytest.raises(ConfigurationError, match=r"count\.min is 30, but only 29 clients"):
        Experiment.from_tables({**SMALL, "phases": phases})


def test_name_alone_equals_a_table_with_that_name() -> None:
    short = Experiment.from_tables({**SMALL, "server": {"rule": "median"}})
    long = Experiment.from_tables({**SMALL, "server": {"rule": [{"name": "median"}]}})
    assert short == long
    assert short.model == {"name": "mlp"}


def test_experiments_are_frozen() -> None:
    experiment = Experiment.from_tables(SMALL)
    with pytest.raises(ValueError, match="frozen"):
        experiment.rounds = 3


def shuffled(value: Any, order: Any) -> Any:
    """The same tables with their keys in another order."""
    if isinstance(value, list):
        return [shuffled(item, order) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: shuffled(value[key], order) for key in order.sample(sorted(value), len(value))}


@settings(max_examples=10)
@given(st.randoms())
def test_digest_does_not_depend_on_the_order_of_keys(order: Any) -> None:
    experiment = Experiment.load("digits-sign-flip")
    mixed = shuffled(experiment.tables(), order)
    assert Experiment.from_tables(mixed).digest() == experiment.digest()


def settings_of(tables: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all numbers in tables."""
    results = []
    for key, value in tables.items():
        if isinstance(value, dict):
            results += settings_of(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            results.append((*path, key))
    return results


def test_digest_changes_with_every_number() -> None:
    # In this mode, all numbers of the table count.
    observing = {"mode": "observe", "by": "operator"}
    tables = Experiment.load("digits-sign-flip").tables()
    tables["server"]["eviction"] |= observing
    experiment = Experiment.from_tables(tables)
    digests = {experiment.digest()}
    paths = settings_of(experiment.tables())
    for path in paths:
        tables = experiment.tables()
        at = tables
        for key in path[:-1]:
            at = at[key]
        number = at[path[-1]]
        at[path[-1]] = number + 1 if isinstance(number, int) else number * 0.75 + 0.01
        digests.add(Experiment.from_tables(tables).digest())
    assert len(paths) > 15
    assert len(digests) == len(paths) + 1


def test_explicit_defaults_and_whole_numbers_do_not_change_the_digest() -> None:
    text = 'name = "small"\nmodel = "mlp"\n[data]\ndataset = "digits"\n'
    same = Experiment.parse(f"rounds = 30\nseed = 0\n{text}clients = 20\n[training]\nepochs = 5\n")
    assert Experiment.parse(text).digest() == same.digest()
    whole = "learning_rate = 1\n[server]\nlearning_rate = 1\n"
    real = "learning_rate = 1.0\n[server]\nlearning_rate = 1.0\n"
    one, other = (Experiment.parse(f"{text}[training]\n{rate}") for rate in (whole, real))
    assert one.digest() == other.digest()


@example(least=1.0, most=2.0, of=3)
@given(
    least=st.floats(0, 1) | st.integers(0, 50).map(float),
    most=st.none() | st.floats(0.001, 1) | st.integers(1, 50).map(float),
    of=st.integers(1, 40),
)
def test_spans_resolve_to_counts_between_zero_and_the_total(
    least: float, most: float | None, of: int
) -> None:
    if most is not None and least > most:
        with pytest.raises(ValueError, match="is above max"):
            Span(min=least, max=most)
        return
    span = Span(min=least, max=most)
    assert 0 <= span.least(of) <= span.most(of) <= of
    if least > 1:
        assert span.least(of) == min(int(least), of)
    if most is None:
        assert span.most(of) == of
    elif most > 1:
        assert span.most(of) == max(min(int(most), of), span.least(of))


@pytest.mark.parametrize(
    ("share", "of", "count"),
    [(0, 7, 0), (0.5, 7, 4), (0.5, 8, 4), (0.8, 20, 16), (0.1, 30, 3), (1, 9, 9), (0.001, 9, 1)],
)
def test_shares_are_rounded_up_to_counts(share: float, of: int, count: int) -> None:
    # 0.8 of 20 is 16 and 0.1 of 30 is 3, whatever floating point makes of the products.
    assert Span(min=share).least(of) == count


def test_client_part_hides_attackers_and_the_servers_settings() -> None:
    experiment = Experiment.load("digits-sign-flip")
    client_part = experiment.client_part()
    assert {"server", "attackers", "placement"}.isdisjoint(client_part)
    text = json.dumps(client_part)
    for secret in ("sign_flip", '"response"', "customizer", "detectors"):
        assert secret in json.dumps(experiment.tables())
        assert secret not in text
    assert client_part["digest"] == experiment.digest()
    assert client_part["sample_cap"] == experiment.server.sample_cap
    # The client part is enough to rebuild the data and the training.
    known = {name: client_part[name] for name in client_part if name in Experiment.model_fields}
    rebuilt = Experiment.from_tables(known)
    assert rebuilt.data == experiment.data
    assert rebuilt.training == experiment.training
    assert rebuilt.roles == [None] * experiment.data.clients


def placed(clients: int, **tables: Any) -> Experiment:
    """An experiment with this many clients and two groups of attackers, three in all."""
    groups = [{"count": 2, "attack": "lie"}, {"count": 1, "data_attack": "label_flip"}]
    data = {"dataset": "digits", "clients": clients}
    return Experiment.from_tables({**SMALL, "data": data, "attackers": groups, **tables})


def test_placement_last_puts_attackers_in_the_last_slots_by_group() -> None:
    experiment = placed(5, placement="last")
    lie, flip = experiment.attackers
    assert experiment.roles == [None, None, lie, lie, flip]
    assert experiment.client_names == [f"client-0{i}" for i in range(5)]


def test_attacker_slots_are_drawn_uniformly_from_the_seed() -> None:
    """Every slot is equally likely for each group, and the same seed gives the same slots."""
    draws = [placed(6, seed=seed) for seed in range(600)]
    assert [one.roles for one in draws] == [placed(6, seed=seed).roles for seed in range(600)]
    for index, count in enumerate([2, 1]):
        taken = [0] * 6
        for one in draws:
            slots = [s for s, role in enumerate(one.roles) if role is one.attackers[index]]
            assert len(slots) == count
            for slot in slots:
                taken[slot] += 1
        # Each count is binomial: within four standard deviations of 600 · count / 6.
        share = count / 6
        reach = 4 * (600 * share * (1 - share)) ** 0.5
        assert all(abs(times - 600 * share) < reach for times in taken), taken


def test_additional_attacker_does_not_move_the_others() -> None:
    def slots(count: int) -> set[int]:
        result = placed(20, seed=7, attackers=[{"count": count, "attack": "lie"}])
        return {slot for slot, role in enumerate(result.roles) if role is not None}

    for count in range(1, 19):
        assert slots(count) < slots(count + 1)


@pytest.mark.parametrize(("policy", "drawn"), [("sync", 2), ("buffered", 4)])
def test_buffered_rounds_draw_no_clients(policy: str, drawn: int) -> None:
    experiment = Experiment.from_tables({**SMALL, "fraction": 0.5, "policy": policy})
    clients = experiment.draw(3, "dbca")
    assert len(clients) == drawn
    assert list(clients) == sorted(clients)


@pytest.mark.parametrize(
    ("joining", "on_time"), [({}, 20), ({"clients": 12}, 12), ({"clients": 25}, 25)]
)
def test_after_the_deadline_fewer_clients_start_a_run(
    joining: dict[str, int], on_time: int
) -> None:
    tables = {**SMALL, "clients": {"least": 7}, "phases": {"joining": joining}}
    experiment = Experiment.from_tables(tables)
    assert experiment.clients_to_start(late=False) == on_time
    assert experiment.clients_to_start(late=True) == 7


def test_every_table_rejects_unknown_keys_and_is_frozen() -> None:
    tables = Table.__subclasses__()
    assert len(tables) > 8
    for table in tables:
        assert table.model_config["extra"] == "forbid"
        assert table.model_config["frozen"]


def test_rules_are_validated_for_the_row_count_of_a_round() -> None:
    few = {**SMALL, "data": {"dataset": "digits", "clients": 10}, "fraction": 0.5}
    few["server"] = {"rule": "krum", "f": 3}
    with pytest.raises(ConfigurationError, match="n=5, f=3"):
        validate(Experiment.from_tables(few))
    buffered = {**few, "policy": "buffered"}
    validate(Experiment.from_tables({**buffered, "buffer": 0.9}))
    with pytest.raises(ConfigurationError, match=r"no round can succeed: krum .* n=5, f=3"):
        validate(Experiment.from_tables({**buffered, "buffer": 0.5}))
    early = {**few, "fraction": 1.0, "phases": {"collecting": {"count": {"min": 2, "max": 8}}}}
    with pytest.raises(ConfigurationError, match="n=8, f=3"):
        validate(Experiment.from_tables(early))
    more = {**few, "phases": {"joining": {"clients": 18}}}
    assert validate(Experiment.from_tables(more)).most_rows == 9
