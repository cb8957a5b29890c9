"""The pytest plugin: `rampart_run` executes experiments on a real federation in your own tests.

    def test_my_client_takes_part(rampart_run):
        running = rampart_run("my-experiment.toml")
        running.start_clients()                      # the experiment's own agents, as processes
        running.take_part("mine", MyParticipant())   # a rampart_fl.Participant
        running.wait()                               # until the run has ended
        assert "mine" in running.run.rounds()[-1].participants

The federation consists of the real services on loopback: the aggregator, and Redis, which fsyncs
every write. The federation starts once per session, and is stopped at the end of the session. Each
call of `rampart_run` submits one run, which is stopped and deleted after the test, even if the test
fails. Clients that the test starts by name stay enrolled, so the same name denotes the same client
in every test. Other clients are barred from the federation after the test, so their agents end. All
files are in pytest's temporary folders.

`rampart_fl.services.console.testing` starts federations of real services without pytest.

pytest imports this module in every session. The module therefore imports the services only when a
test uses them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rampart_fl.services.console.launcher.servers import LocalServers
    from rampart_fl.services.console.testing import RunningFederation
    from rampart_fl.shared.experiment import Experiment


@pytest.fixture(scope="session")
def rampart_settings() -> dict[str, str]:
    """The aggregator's settings, such as `{"offline_after": "5"}`; override this fixture to add
    settings."""
    return {}


@pytest.fixture(scope="session")
def rampart_federation(
    tmp_path_factory: pytest.TempPathFactory, rampart_settings: dict[str, str]
) -> "Iterator[LocalServers]":
    """The federation of the session, without runs."""
    from rampart_fl.services.console.testing import federation

    with federation(tmp_path_factory.mktemp("federation"), rampart_settings) as servers:
        yield servers


@pytest.fixture
def rampart_run(
    rampart_federation: "LocalServers", tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Callable[[Experiment | str | Path], RunningFederation]]":
    """A function that ends the test's previous run, then starts a run of the given experiment."""
    from rampart_fl.services.console.testing import dismiss, run_on

    with ExitStack() as started:

        def start(experiment: "Experiment | str | Path") -> "RunningFederation":
            started.close()
            folder = tmp_path_factory.mktemp("run")
            return started.enter_context(run_on(rampart_federation, experiment, folder))

        yield start
    dismiss(rampart_federation)
