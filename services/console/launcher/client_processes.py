"""The processes that host the clients of an experiment, both honest clients and attackers."""

import json
import os
from pathlib import Path

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.processes import (
    Processes,
    free_port,
    wait_until_listening,
)
from rampart_fl.services.console.launcher.servers import START
from rampart_fl.shared.experiment.schema import Attackers, Experiment
from rampart_fl.shared.runtime.ranges import format_ranges
from rampart_fl.shared.runtime.tokens import mint

COMEBACKS = 2
"""Number of additional join tokens for each attacker that rejoins after an eviction."""


class ClientProcesses:
    """Starts the clients of one experiment.

    Args:
        experiment: the experiment, which the aggregator runs.
        folder: folder whose subfolder `clients` holds the state of the clients.
        operator: a connection to the aggregator.
        processes: starts the processes, and stops them at the end.
        per_process: maximum number of clients per process.
        test_tap: token for the aggregator's test tap, which shows the honest updates to attackers
            with full knowledge. By default, the environment variable RAMPART_TEST_TAP supplies the
            token.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        operator: Operator,
        processes: Processes,
        per_process: int = 10,
        test_tap: str | None = None,
    ) -> None:
        self.experiment = experiment
        self.folder = folder
        self.operator = operator
        self.processes = processes
        self.per_process = per_process
        self.test_tap = test_tap
        self._cohort: dict[str, str] = {}
        """Environment variables for attackers, with the address and the token of the cohort; empty
        if there is no cohort."""

    def start(self) -> None:
        """Starts every client of the experiment, both honest clients and attackers."""
        names = self.experiment.client_names
        tokens = dict(zip(names, self.operator.mint(names).tokens, strict=True))
        hostile = sum(group.count for group in self.experiment.attackers)
        if any(collude(group) for group in self.experiment.attackers):
            # As in the simulation, colluders get the updates of all attackers, even of attackers
            # that do not collude.
            self._start_cohort(hostile)
        for name, (role, slots) in self.groups().items():
            own = [tokens[names[slot]] for slot in slots]
            if role is not None and rejoins(role):
                own += self.operator.mint_unbound(COMEBACKS * len(slots)).tokens
            self.start_group(name, role, slots, own)

    def groups(self) -> dict[str, tuple[Attackers | None, list[int]]]:
        """The role and the slots of each process, by process name; honest clients come first."""
        roles = self.experiment.roles
        groups: list[tuple[Attackers | None, list[int]]] = []
        for group in (None, *self.experiment.attackers):
            slots = [slot for slot, role in enumerate(roles) if role is group]
            starts = range(0, len(slots), self.per_process)
            groups += [(group, slots[start : start + self.per_process]) for start in starts]
        return {f"clients-{number}": group for number, group in enumerate(groups)}

    def _start_cohort(self, members: int) -> None:
        """Starts the cohort, a process through which attackers share their updates."""
        port, token = free_port(), mint()
        tap = self.test_tap or os.environ.get("RAMPART_TEST_TAP")
        url = self.operator.url
        knowing = {"RAMPART_COHORT_TAP": url, "RAMPART_COHORT_TAP_TOKEN": tap} if tap else {}
        self.processes.python(
            "cohort",
            "rampart_fl.services.attacker",
            "cohort",
            RAMPART_COHORT_PORT=str(port),
            RAMPART_COHORT_TOKEN=token,
            RAMPART_COHORT_MEMBERS=str(members),
            **knowing,
        )
        wait_until_listening(port, self.processes, "cohort", START)
        self._cohort = {
            "RAMPART_COHORT": f"http://127.0.0.1:{port}",
            "RAMPART_COHORT_TOKEN": token,
        }

    def start_group(
        self, name: str, role: Attackers | None, slots: list[int], join_tokens: list[str]
    ) -> None:
        """Starts one process that hosts the clients of these slots."""
        state = self.folder / "clients" / name
        state.mkdir(parents=True, exist_ok=True)
        tokens = state / "join-tokens"
        with os.fdopen(
            os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write("\n".join(join_tokens))
        self.restart_group(name, role, slots)

    def restart_group(self, name: str, role: Attackers | None, slots: list[int]) -> None:
        """Starts the process that hosts these clients; they continue from any stored state."""
        state = self.folder / "clients" / name
        environment = {
            "RAMPART_AGGREGATOR": self.operator.url,
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
            **self._cohort,
            "RAMPART_MEMBERS": str(len(hostile)),
            "RAMPART_POSITIONS": format_ranges(hostile.index(slot) for slot in slots),
        }
        if role.attack is not None:
            environment["RAMPART_ATTACK"] = json.dumps(role.attack)
        if role.data_attack is not None:
            environment["RAMPART_DATA_ATTACK"] = json.dumps(role.data_attack)
        self.processes.python(name, "rampart_fl.services.attacker", **environment)


def collude(role: Attackers) -> bool:
    """Whether attackers with this role use the updates of other attackers."""
    from rampart_fl.shared.attacks.model import attacks

    return role.attack is not None and attacks.parse(role.attack).asks_for != "agnostic"


def rejoins(role: Attackers) -> bool:
    """Whether attackers with this role join again after an eviction."""
    from rampart_fl.shared.attacks.model import attacks

    return role.attack is not None and attacks.parse(role.attack).rejoins
