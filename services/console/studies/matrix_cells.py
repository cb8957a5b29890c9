"""The cells of a matrix: one experiment for each attack, each defence and each seed.

A cell's experiment is the base experiment with the attack of its row and the defence of its column.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.attacks.triggers import Backdoor
from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.validation import validate

NOBODY = "none"
"""The name of the row in which all clients behave honestly. In every row, including this one, the
accuracies come from the same clients. Clients that attack in any row are left out."""
FEDCAP = {"name": "fedcap", "alpha": 10, "phi": 0.1}
DETECTORS: dict[str, list[Any]] = {
    "fedcap": ["response", "challenge"],
    "fedcap-paper": [{"name": "norm_bound", "threshold": 10}],
}
"""The defences that customize models, each with its detectors."""
LOCAL_ONLY = "local_only"
REFERENCES = {LOCAL_ONLY: "local", "fine_tuned": "fine_tune"}
"""Personalizers of the two baselines, keyed by baseline. In `local_only`, clients train without
exchanging models or updates. `fine_tuned` is plain averaging, but each client keeps its locally
trained model as its personal model."""


@dataclass(frozen=True)
class MatrixCell:
    """One run of the matrix.

    Args:
        attack, defence: attack and defence, as given on the command line.
        experiment: the experiment of the run.
        network: whether to run the real services over HTTP instead of a simulation.
    """

    attack: str
    defence: str
    experiment: Experiment
    network: bool = False

    @property
    def file(self) -> str:
        """Name of the file with this cell's results."""
        return f"{'network' if self.network else 'simulated'}-{self.experiment.digest()}.json"


def member(text: str) -> dict[str, Any]:
    """Parses an attack or a stage: a name and `:key=value` for each parameter, with TOML values.

    >>> member("dba:width=3:target=2")
    {'name': 'dba', 'width': 3, 'target': 2}
    >>> member("lie:knows=full")
    {'name': 'lie', 'knows': 'full'}
    """
    name, *pairs = re.split(r":(?=[a-z_]+=)", text)
    if ":" in name:
        raise ConfigurationError(f"{text!r}: write parameters as name:key=value")
    spec: dict[str, Any] = {"name": name}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            spec[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            spec[key] = value
    return spec


def with_attack(base: Experiment, attack: str) -> dict[str, Any]:
    """The TOML tables of the base experiment, with `attack` in place of its own attack.

    The number of attackers stays the same; if the base experiment has no attackers, 30 % of the
    clients attack.
    """
    tables = {**base.tables(), "attackers": []}
    count = sum(group.count for group in base.attackers) or max(1, round(0.3 * base.data.clients))
    spec = {"name": "sign_flip", "until_round": 0} if attack == NOBODY else member(attack)
    if spec["name"] in model_attacks.names():
        return {**tables, "attackers": [{"count": count, "attack": spec}]}
    if spec["name"] not in data_attacks.names():
        known = (NOBODY, *model_attacks.names(), *data_attacks.names())
        raise UnknownMember("attack", str(spec["name"]), known)
    if isinstance(data_attacks.parse(spec), Backdoor):
        tables["evaluation"] = {**tables["evaluation"], "trigger": spec}
    return {**tables, "attackers": [{"count": count, "data_attack": spec}]}


def with_defence(tables: dict[str, Any], defence: str, f: int) -> dict[str, Any]:
    """The TOML tables of an experiment, with `defence` in place of its own defence.

    Args:
        tables: TOML tables of the experiment.
        defence: a key of `DETECTORS` (a defence with detectors), a key of `REFERENCES` (a
            baseline), or the stages of a pipeline, separated by "+".
        f: upper bound on the number of hostile clients, and on the number of barred clients.
    """
    carried = ("learning_rate", "momentum", "sample_cap", "root", "public")
    server = {**{k: tables["server"][k] for k in carried}, "f": f}
    if defence in REFERENCES:
        return {**tables, "personalizer": REFERENCES[defence], "server": server}
    if defence not in DETECTORS:
        stages = [member(stage) for stage in defence.split("+")]
        return {**tables, "personalizer": "none", "server": {**server, "rule": stages}}
    same = tables["server"]["customizer"]["name"] == FEDCAP["name"]
    server["customizer"] = tables["server"]["customizer"] if same else FEDCAP
    server["detectors"] = DETECTORS[defence]
    server["eviction"] = {"bounded": defence != "fedcap-paper"}
    own = tables["personalizer"]
    return {
        **tables,
        "personalizer": own if own["name"] == "fedcap" else "fedcap",
        "server": server,
    }


def plan(
    base: Experiment,
    attacks: Sequence[str],
    defences: Sequence[str],
    seeds: int = 1,
    rounds: int | None = None,
    network: bool = False,
) -> list[MatrixCell]:
    """Builds and validates all cells, seed by seed, so that errors are found before the first run.

    Args:
        base: the experiment that all cells modify; its seed is the first seed.
        attacks, defences: the attacks (rows) and defences (columns) of the matrix.
        seeds: number of consecutive seeds.
        rounds: number of rounds of every run; by default, the base experiment's number.
        network: whether the cells run over HTTP.
    Raises:
        ConfigurationError: `attacks` or `defences` is empty or has duplicates, or a cell is not a
            valid experiment.
    """
    for kind, listed in (("attack", attacks), ("defence", defences)):
        if not listed:
            raise ConfigurationError(f"a matrix needs at least one {kind}")
        for name, times in Counter(listed).items():
            if times > 1:
                raise ConfigurationError(f"{kind} {name!r} is listed {times} times; list it once")
    cells = []
    for seed in range(base.seed, base.seed + seeds):
        changes = {"seed": seed, "rounds": rounds or base.rounds}
        for attack in attacks:
            tables = {**with_attack(base, attack), **changes}
            hostile = sum(group["count"] for group in tables["attackers"])
            for defence in defences:
                chosen = with_defence(tables, defence, hostile)
                if defence == LOCAL_ONLY:
                    # No attack can affect these clients, because they train alone and receive
                    # nothing. So leave out the attack.
                    chosen["attackers"] = with_attack(base, NOBODY)["attackers"]
                experiment = validate(Experiment.from_tables(chosen))
                cells.append(MatrixCell(attack, defence, experiment, network))
    return cells
