"""Fixtures and hooks that all tests share."""

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from rampart_fl.shared.families.registry import Registry

# No test limits the time of an example, and every run draws the same examples.
settings.register_profile("rampart", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("rampart"), max_examples=25)
settings.load_profile("rampart")


ForgetMembers = Callable[["Registry[Any]"], None]
FROZEN = {"modules": 0}
"""Number of modules that were imported when objects were last frozen."""
STARTERS = {"redis_url", "kubectl"}
"""Fixtures that start a process."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without the garbage collector, which finds no garbage among modules and tests.

    Afterwards, the collector runs rarely.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logstart() -> None:
    """Freezes all objects after many imports, so that the garbage collector skips them.

    A service in the test's process runs the collector whenever a run ends.
    """
    if len(sys.modules) > FROZEN["modules"] + 100:
        gc.collect()
        gc.freeze()
        FROZEN["modules"] = len(sys.modules)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Looks for doctests only in files that have some: few of the many test files do."""
    result = yield
    if file_path.suffix == ".py" and b">>> " not in file_path.read_bytes():
        return [one for one in result if type(one) is pytest.Module]
    return result


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks tests that `make test-fast` leaves out; further tests carry the marker themselves."""
    if not STARTERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.processes)


@pytest.fixture(autouse=True)
def one_import_root() -> Iterator[None]:
    """Fails if a test imports a module without its package: registries would then exist twice."""
    yield
    assert not {"shared", "services"} & sys.modules.keys(), "import rampart_fl... instead"


@pytest.fixture
def forget_members(monkeypatch: pytest.MonkeyPatch) -> ForgetMembers:
    """Marks a family whose members that a test adds are removed after the test."""

    def mark(family: "Registry[Any]") -> None:
        # Otherwise, the family's own members would be imported later, and removed, too.
        family.names()
        monkeypatch.setattr(family, "_members", dict(family._members))

    return mark


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio, as the services do."""
    return "asyncio"


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real redis-server that fsyncs every write; each test uses its own namespace."""
    import redis

    from rampart_fl.services.console.launcher.processes import free_port
    from rampart_fl.services.console.launcher.servers import redis_server

    port, folder = free_port(), tmp_path_factory.mktemp("redis")
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": ""}
    options |= {"appendonly": "yes", "appendfsync": "always"}
    command = [redis_server(), *(str(p) for k, v in options.items() for p in (f"--{k}", v))]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with redis.Redis(port=port) as client:
            while True:
                assert child.poll() is None, (folder / "log").read_text()
                try:
                    client.ping()
                except redis.ConnectionError:
                    time.sleep(0.02)
                else:
                    break
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        child.terminate()
        child.wait()
