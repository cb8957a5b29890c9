"""`python -m rampart_fl.services.attacker` hosts hostile clients; `... cohort` runs a cohort."""

import json
import sys
from collections import defaultdict
from typing import Any, Self
from weakref import WeakSet

from pydantic import Field, SecretStr, model_validator

from rampart_fl.services.attacker import cohort
from rampart_fl.services.attacker.cohort_client import CohortClient
from rampart_fl.services.attacker.hostile import HostileClient
from rampart_fl.shared.agent.agent_context import AgentContext
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import check_capabilities, host
from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.process import run_service
from rampart_fl.shared.runtime.ranges import parse_lists, parse_ranges


class AttackerSettings(AgentSettings):
    """Settings of a process that hosts hostile clients; RAMPART_<FIELD> sets a field."""

    attack: str | None = None
    """Attack on updates: its name, or a JSON object with its parameters."""
    data_attack: str | None = None
    """Attack on the clients' own data: its name, or a JSON object with its parameters."""
    cohort: str | None = None
    """URL of the cohort. If one attacker of a run colludes, all attackers of the run need this URL,
    because colluders wait for the updates of all attackers and use these updates."""
    cohort_token: SecretStr | None = None
    """Token with which attackers authenticate to the cohort."""
    members: int = Field(default=1, ge=1)
    """Total number of attackers."""
    ticket_wait: int = Field(default=1, ge=1, le=300)
    """Maximum time in seconds for which the aggregator holds a request for a ticket open. Keep this
    time short. An attacker that is not selected for a round reports its absence only after the
    aggregator has answered the attacker's request. The selected colluders wait for this report."""
    positions: str | None = None
    """Positions of this process's clients among all attackers, such as "0-2,5". By default, the
    positions follow the order of `slots`."""

    @model_validator(mode="after")
    def _a_position_for_each_client(self) -> Self:
        positions, clients = self.own_positions, len(self.hosted)
        if len(positions) != clients:
            raise ValueError(
                f"there are {len(positions)} positions for {clients} slots; give one per slot"
            )
        if max(positions) >= self.members:
            raise ValueError(
                f"position {max(positions)} is out of range for {self.members} members"
            )
        return self

    @property
    def own_positions(self) -> list[int]:
        """The positions of this process's clients among all attackers.

        >>> AttackerSettings(slots="3,7 12", ordinal=1, members=3).own_positions
        [2]
        """
        if self.positions is not None:
            return parse_ranges(self.positions)
        before = [] if self.slots is None else parse_lists(self.slots)[: self.ordinal or 0]
        first = sum(map(len, before))
        return list(range(first, first + len(self.hosted)))


def member_spec(text: str) -> Any:
    """Parses an attack from text: either the attack's name, or a JSON object with its parameters.

    >>> member_spec('{"name": "ipm", "epsilon": 2}')
    {'name': 'ipm', 'epsilon': 2}
    """
    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"attack {text!r} is not a JSON object: {error}") from None


async def attack(settings: AttackerSettings) -> None:
    """Hosts the hostile clients of one process."""
    model = None if settings.attack is None else model_attacks.parse(member_spec(settings.attack))
    data_attack = None
    if settings.data_attack is not None:
        data_attack = data_attacks.parse(member_spec(settings.data_attack))
    if model is None and data_attack is None:
        raise ValueError("an attacker needs --attack or --data-attack")
    rejoins = model is not None and model.rejoins
    colludes = model is not None and model.asks_for != "agnostic"
    alone = settings.members == 1 and model is not None and model.asks_for != "full"
    if colludes and not alone and settings.cohort is None:
        raise ValueError(f"{settings.attack} colludes: --cohort and --cohort-token are needed")
    if settings.cohort is not None and settings.cohort_token is None:
        raise ValueError("--cohort needs --cohort-token")
    lives = defaultdict[int, set[str]](set)
    meetings = WeakSet[CohortClient]()

    async def build(context: AgentContext) -> HostileClient:
        settings.check_trust(context.experiment)
        meeting = None
        further = settings.further_tokens(context.position) if rejoins else []
        lives[context.position].add(context.client)
        if settings.cohort is not None:
            token = settings.cohort_token
            assert token is not None
            meeting = CohortClient(
                settings.cohort, token.get_secret_value(), context.client, context.run
            )
            meetings.add(meeting)
        return HostileClient(
            attack=model,
            data_attack=data_attack,
            cohort=meeting,
            members=settings.members,
            position=settings.own_positions[context.position],
            returns=len(lives[context.position]) <= len(further),
            experiment=context.experiment,
            client=context.client,
            data=await context.data(),
            folder=context.folder,
            sample_cap=context.sample_cap,
            thread=context.thread,
            dtype=settings.upload_dtype,
            activity=context.activity,
            device=settings.device,
        )

    try:
        await host(settings, build, rejoins, check_capabilities(settings))
    finally:
        for meeting in meetings:
            await meeting.close()


def main() -> int:
    """Runs attackers, or the cohort if the first argument is `cohort`."""
    if sys.argv[1:2] == ["cohort"]:
        del sys.argv[1]
        return run_service("attacker", cohort.CohortSettings, cohort.serve, own_signals=True)
    return run_service("attacker", AttackerSettings, attack)


if __name__ == "__main__":
    sys.exit(main())
