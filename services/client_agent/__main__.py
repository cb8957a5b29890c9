"""`python -m rampart_fl.services.client_agent`: runs a process that hosts honest clients.

Every setting can be given as a flag or as the variable RAMPART_<SETTING>.
"""

import sys

from rampart_fl.services.client_agent.custom import from_path
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import build_honest_client, check_capabilities, host
from rampart_fl.shared.runtime.process import run_service


class ClientSettings(AgentSettings):
    """Settings of a process that hosts honest clients; RAMPART_<FIELD> sets a field."""

    client: str | None = None
    """MODULE:FUNCTION that makes your own clients. The agent calls FUNCTION with a slot, and gets a
    client (see docs/your-own-client.md). By default, the experiment determines what a client
    computes."""


async def run(settings: ClientSettings) -> None:
    """Hosts honest clients until the process is stopped, or all these clients are barred."""
    own = settings.client
    if own is None:
        await host(settings, build_honest_client(settings), check=check_capabilities(settings))
    else:
        await host(settings, from_path(own))


def main() -> int:
    """Runs the process."""
    return run_service("client-agent", ClientSettings, run)


if __name__ == "__main__":
    sys.exit(main())
