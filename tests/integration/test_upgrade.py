"""An upgrade of a running federation fails no request, and does not change its models."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from benchmarks.chaos import comparable
from rampart_fl.services.console.launcher.up import blobs_digest
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import Ticket
from tests.integration.in_process_federation import FEDCAP, Hosted, Scripted, experiment, until
from tests.integration.multi_process_federation import Parted
from tests.integration.releases import Balancer, Prober, next_release

NAMES = ["ada", "bob", "cleo", "dan"]
EXPERIMENT = experiment(4, 20, seed=7, server=FEDCAP)
REFUSED = "Redis holds schema 4; this version reads 3"


class Upgraded(Parted):
    """Two apis behind a balancer, two workers, and clients that the test can hold back."""

    def __init__(self, definition: Experiment, folder: Path, redis_url: str) -> None:
        super().__init__(definition, folder, redis_url)
        self.balancer = Balancer(self.ports["api"], [])
        self.last = 1

    def begin(self) -> None:
        """Starts the processes of this release, and the clients."""
        for name in ("api-1", "api-2"):
            self.start("api", name)
        self.start("worker", "worker-1")
        self.hand_over("worker-1")
        self.start("worker", "worker-2")
        for name in ("api-1", "api-2", "worker-2"):
            self.ready(name)
        self.route("api-1", "api-2")
        for name in NAMES:
            self.join(name)
        for name in NAMES:
            self.take_part(name, Scripted(name, self.held))
        self.wait("collecting", self.last + 1)

    def held(self, ticket: Ticket) -> bool:
        """Whether clients do not answer this ticket yet."""
        return ticket.round > self.last

    @contextmanager
    def two_rounds(self) -> Iterator[None]:
        """Two more rounds begin with the context, and have ended after it."""
        self.last += 2
        yield
        self.wait("collecting", self.last + 1)

    def ready(self, *names: str) -> None:
        """Waits until processes are ready."""
        for name in names:
            until(lambda name=name: self.answers(name))

    def answers(self, name: str) -> bool:
        """Whether a process is ready."""
        self.processes.check(name)
        try:
            return httpx.get(f"http://127.0.0.1:{self.ports[name]}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def route(self, *apis: str) -> None:
        """Makes the balancer pass new connections to these apis only."""
        self.balancer.backends = [self.ports[name] for name in apis]

    def drain(self, name: str) -> None:
        """Sends SIGTERM to a process, which has to end by itself."""
        child = self.processes[name]
        self.processes.stop(name)
        assert child.poll() == 0, self.processes.tail(name)

    def refused(self, name: str) -> None:
        """Waits until a process has ended because of the schema, and forgets the process."""
        child = self.processes[name]
        until(lambda: child.poll() is not None)
        assert child.poll() == 1
        assert REFUSED in (self.processes.logs / f"{name}.log").read_text()
        self.processes.stop(name)

    def dump(self) -> dict[bytes, bytes | None]:
        """All state of the federation in Redis and the blobs, except keys that expire."""
        with redis.Redis.from_url(self.redis_url) as client:
            keys = list(client.scan_iter(match=f"{{{self.namespace}}}:*"))
            values = {key: client.dump(key) for key in keys if client.ttl(key) == -1}
        blobs = Path(self.settings["RAMPART_BLOBS"])
        return values | {str(path).encode(): None for path in blobs.rglob("*")}


@pytest.fixture
def running(tmp_path: Path, redis_url: str) -> Iterator[Upgraded]:
    """The federation in this release, in the middle of its run."""
    folder = tmp_path / "parted"
    folder.mkdir()
    made = Upgraded(EXPERIMENT, folder, redis_url)
    with made.balancer:
        made.__enter__()
        try:
            made.begin()
            yield made
        finally:
            made.stop()


@pytest.fixture
def prober(running: Upgraded) -> Prober:
    """A prober for paths that need only Redis, and for a path that needs blobs."""
    run = f"/v1/runs/{running.run.id}"
    paths = ["/v1/runs", f"{run}/rounds/current", f"{run}/rounds?limit=1", f"{run}/models/global"]
    return Prober(running.ports["api"], running.settings["RAMPART_OPERATOR_TOKEN"], paths)


def finish(running: Upgraded, host: Callable[..., Hosted]) -> None:
    """Lets the run end; its result must equal that of a run without an upgrade."""
    running.last = EXPERIMENT.rounds
    running.wait()
    calm = host(EXPERIMENT)
    calm.scripted(NAMES)
    calm.wait()
    records, expected = running.run.rounds(), calm.run.rounds()
    assert list(map(comparable, records)) == list(map(comparable, expected))
    assert blobs_digest(records[-1]) == blobs_digest(expected[-1])


@pytest.mark.timeout(300)
@pytest.mark.long
def test_rolling_upgrade_within_a_schema_fails_no_request(
    running: Upgraded, prober: Prober, host: Callable[..., Hosted], tmp_path: Path
) -> None:
    release = next_release(tmp_path / "next", new_schema=False)
    with prober:
        for former, new, kept in (("api-1", "api-3", "api-2"), ("api-2", "api-4", "api-3")):
            running.start("api", new, release)
            running.ready(new)
            with running.two_rounds():
                prober.between_requests(lambda kept=kept, new=new: running.route(kept, new))
                running.drain(former)
        for worker in ("worker-2", "worker-1"):
            with running.two_rounds():
                running.drain(worker)
                running.start("worker", worker, release)
                running.ready(worker)
        assert running.holder() == "worker-2"
        finish(running, host)
    assert prober.failed == []
    assert prober.releases == {"this", "next"}


@pytest.mark.timeout(300)
def test_upgrade_to_the_next_schema_converts_the_state_and_fails_no_request(
    running: Upgraded, prober: Prober, host: Callable[..., Hosted], tmp_path: Path
) -> None:
    release = next_release(tmp_path / "next", new_schema=True)
    running.start("api", "api-forgotten")
    with prober:
        for name in ("api-3", "api-4", "worker-3", "worker-4"):
            running.start(name[: name.index("-")], name, release)
        running.ready("api-forgotten", "api-3", "api-4", "worker-3", "worker-4")
        with running.two_rounds():
            prober.between_requests(lambda: running.route("api-3", "api-4"))
            for name in ("api-1", "api-2", "worker-2", "worker-1"):
                running.drain(name)
        running.refused("api-forgotten")
        finish(running, host)
    assert prober.failed == []
    assert prober.releases == {"this", "next"}

    for name in ("api-3", "api-4", "worker-3", "worker-4"):
        running.drain(name)
    before = running.dump()
    assert before[f"{{{running.namespace}}}:run:{running.run.id}:seats".encode()]
    running.start("worker", "worker-1")
    running.start("api", "api-1")
    running.refused("worker-1")
    running.refused("api-1")
    assert running.dump() == before
