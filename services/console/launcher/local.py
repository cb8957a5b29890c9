"""A whole federation on this machine: real Redis, aggregator, clients and attackers on loopback."""

import json
import os
from pathlib import Path
from typing import Any

import tomli_w

from rampart_fl.services.console.launcher.processes import (
    Processes,
    free_port,
    wait_until_listening,
)
from rampart_fl.services.console.launcher.servers import START, LocalServers
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Attackers, Experiment
from rampart_fl.shared.protocol.runs import OVER
from rampart_fl.shared.runtime.ranges import format_ranges
from rampart_fl.shared.runtime.tokens import mint

COMEBACKS = 2
"""Number of additional join tokens for each attacker that rejoins after an eviction."""


class LocalFederation(LocalServers):
    """Starts and stops the processes of one experiment.

    Args:
        experiment: the experiment to run.
        folder: folder for state, logs and records; created if missing.
        per_process: maximum number of clients per process.
        settings: further RAMPART_ variables of the aggregator.
        processes: starts the processes; by default, each process is a new interpreter.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        per_process: int = 10,
        settings: dict[str, str] | None = None,
        processes: type[Processes] = Processes,
    ) -> None:
        super().__init__(folder, settings, processes=processes)
        self.experiment = experiment
        self.per_process = per_process

    def start_servers(self) -> None:
        """Starts Redis and the aggregator, and waits until the run has started."""
        super().start_servers()
        started = self.operator.await_start(START)
        if started.state in OVER:
            raise ConfigurationError(f"run {started.run} {started.state}: {started.reason}")

    def variables(self) -> dict[str, str]:
        """Environment variables of an aggregator that submits the experiment at its first start."""
        path = self.folder / "experiment.toml"
        if not path.exists():
            path.write_text(to_toml(self.experiment.tables()))
        return {"RAMPART_EXPERIMENT": str(path), **super().variables()}

    def start_clients(self) -> None:
        """Starts every client of the experiment, both honest clients and attackers."""
        names = self.experiment.client_names
        tokens = dict(zip(names, self.operator.mint(names).tokens, strict=True))
        hostile = sum(group.count for group in self.experiment.attackers)
        if hostile:
            self.start_cohort(hostile)
        for number, (role, slots) in enumerate(self.groups()):
            own = [tokens[names[slot]] for slot in slots]
            if role is not None and rejoins(role):
                own += self.operator.mint_unbound(COMEBACKS * len(slots)).tokens
            self.start_group(f"clients-{number}", role, slots, own)

    def groups(self) -> list[tuple[Attackers | None, list[int]]]:
        """The role and the slots of each process that hosts clients, honest clients first."""
        roles = self.experiment.roles
        groups: list[tuple[Attackers | None, list[int]]] = []
        for group in (None, *self.experiment.attackers):
            slots = [slot for slot, role in enumerate(roles) if role is group]
            starts = range(0, len(slots), self.per_process)
            groups += [(group, slots[start : start + self.per_process]) for start in starts]
        return groups

    def start_cohort(self, members: int) -> None:
        """Starts the cohort, a process through which attackers share their updates."""
        self.cohort_port, self.cohort_token = free_port(), mint()
        tap = self.settings.get("RAMPART_TEST_TAP") or os.environ.get("RAMPART_TEST_TAP")
        knowing = {"RAMPART_COHORT_TAP": self.url, "RAMPART_COHORT_TAP_TOKEN": tap} if tap else {}
        self.processes.python(
            "cohort",
            "rampart_fl.services.attacker",
            "cohort",
            RAMPART_COHORT_PORT=str(self.cohort_port),
            RAMPART_COHORT_TOKEN=self.cohort_token,
            RAMPART_COHORT_MEMBERS=str(members),
            **knowing,
        )
        wait_until_listening(self.cohort_port, self.processes, "cohort", START)

    def start_group(
        self, name: str, role: Attackers | None, slots: list[int], join_tokens: list[str]
    ) -> None:
        """Starts one process that hosts the clients of these slots."""
        state = self.folder / "clients" / name
        state.mkdir(parents=True, exist_ok=True)
        tokens = state / "join-tokens"
        with os.fdopen(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write("\n".join(join_tokens))
        self.restart_group(name, role, slots)

    def restart_group(self, name: str, role: Attackers | None, slots: list[int]) -> None:
        """Starts a group's process with the group's stored state."""
        state = self.folder / "clients" / name
        environment = {
            "RAMPART_AGGREGATOR": self.url,
            "RAMPART_SLOTS": format_ranges(slots),
            "RAMPART_STATE": str(state),
            "RAMPART_JOIN_TOKENS": str(state / "join-tokens"),
            "OMP_NUM_THREADS": "1",
        }
        if role is None:
            self.processes.python(name, "rampart_fl.services.client_agent", **environment)
            return
        hostile = [slot for slot, one in enumerate(self.experiment.roles) if one is not None]
        environment |= {
            "RAMPART_COHORT": f"http://127.0.0.1:{self.cohort_port}",
            "RAMPART_COHORT_TOKEN": self.cohort_token,
            "RAMPART_MEMBERS": str(len(hostile)),
            "RAMPART_POSITIONS": format_ranges(hostile.index(slot) for slot in slots),
        }
        if role.attack is not None:
            environment["RAMPART_ATTACK"] = json.dumps(role.attack)
        if role.data_attack is not None:
            environment["RAMPART_DATA_ATTACK"] = json.dumps(role.data_attack)
        self.processes.python(name, "rampart_fl.services.attacker", **environment)


def rejoins(role: Attackers) -> bool:
    """Whether these attackers join again after an eviction."""
    from rampart_fl.shared.attacks.model import attacks

    return role.attack is not None and attacks.parse(role.attack).rejoins


def to_toml(tables: dict[str, Any]) -> str:
    """Plain tables as TOML, without the keys whose value is None.

    >>> print(to_toml({"name": "x", "data": {"clients": 2, "groups": None}}), end="")
    name = "x"
    <BLANKLINE>
    [data]
    clients = 2
    """
    return tomli_w.dumps(_without_none(tables))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value
