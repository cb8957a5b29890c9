"""`python -m services.attacker`: hostile clients; `... cohort` runs the place where they meet."""

import json
import sys
from collections import Counter
from typing import Any

from pydantic import Field, SecretStr

from services.attacker import cohort
from services.attacker.cohort_client import CohortClient
from services.attacker.hostile import HostileClient
from shared.attacks.data import attacks as data_attacks
from shared.attacks.model import attacks as model_attacks
from shared.errors import ConfigurationError
from shared.learning.agent import AgentSettings, Seat, host
from shared.process import run_service


class AttackerSettings(AgentSettings):
    """Settings of a process that hosts hostile clients; each field is RAMPART_<FIELD>."""

    attack: str | None = None
    """Attack on updates: its name, or a JSON table with its parameters."""
    data_attack: str | None = None
    """Attack on its own data: its name, or a JSON table with its parameters."""
    cohort: str | None = None
    """URL of the cohort, for attacks whose members collude."""
    cohort_token: SecretStr | None = None
    """What members of the cohort authenticate with."""
    members: int = Field(default=1, ge=1)
    """How many attackers there are in all."""
    first_position: int = Field(default=0, ge=0)
    """Position among the attackers of this process's first client."""


def member_spec(text: str) -> Any:
    """A name, or a table from JSON.

    >>> member_spec('{"name": "ipm", "epsilon": 2}')
    {'name': 'ipm', 'epsilon': 2}
    """
    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"attack {text!r} is no JSON table: {error}") from None


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
    lives: Counter[int] = Counter()
    meetings: list[CohortClient] = []

    async def build(seat: Seat) -> HostileClient:
        settings.check_trust(seat.experiment)
        position, meeting = seat.slot - settings.first_slot, None
        further = settings.further_tokens(position) if rejoins else []
        lives[seat.slot] += 1
        if settings.cohort is not None and colludes:
            token = settings.cohort_token
            assert token is not None
            meeting = CohortClient(settings.cohort, token.get_secret_value(), seat.client)
            meetings.append(meeting)
        return HostileClient(
            attack=model,
            data_attack=data_attack,
            cohort=meeting,
            members=settings.members,
            position=settings.first_position + position,
            returns=lives[seat.slot] <= len(further),
            experiment=seat.experiment,
            client=seat.client,
            data=await seat.data(),
            folder=seat.folder,
            sample_cap=seat.identity.sample_cap,
            thread=seat.thread,
            dtype=settings.upload_dtype,
        )

    try:
        await host(settings, build, rejoins)
    finally:
        for meeting in meetings:
            await meeting.close()


def main() -> int:
    """Runs attackers, or `cohort` as the first argument for their meeting place."""
    if sys.argv[1:2] == ["cohort"]:
        del sys.argv[1]
        return run_service("attacker", cohort.CohortSettings, cohort.serve, own_signals=True)
    return run_service("attacker", AttackerSettings, attack)


if __name__ == "__main__":
    sys.exit(main())
