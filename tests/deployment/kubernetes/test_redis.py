"""Redis starts with durable writes and a password, and its data fit the container's memory."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.services.console.launcher.servers import redis_server


@pytest.fixture(params=["compose", "kubernetes"])
def redis_script(
    request: pytest.FixtureRequest, root: Path, load: Callable[[str], list[Any]]
) -> str:
    """The script that starts Redis, from each platform's files."""
    if request.param == "compose":
        (file,) = load((root / "docker-compose.yml").read_text())
        command = file["services"]["redis"]["command"]
        assert command[:2] == ["sh", "-ec"]
        return str(command[2]).replace("$$", "$")
    (stateful,) = [
        one
        for one in load((root / "k8s/manifests/dev.yaml").read_text())
        if one["metadata"]["name"] == "rampart-redis" and one["kind"] == "StatefulSet"
    ]
    container = stateful["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["sh", "-ec"]
    return str(container["args"][0])


@pytest.fixture
def start(
    redis_script: str, root: Path, tmp_path: Path
) -> Iterator[Callable[[str], tuple[int, "subprocess.Popen[bytes]"]]]:
    """Runs the script with a real redis-server, and with the paths and the port of the test."""
    running: list[subprocess.Popen[bytes]] = []

    def run(password: str) -> tuple[int, "subprocess.Popen[bytes]"]:
        port = free_port()
        for folder in ("data", "tmp", "bin"):
            (tmp_path / folder).mkdir()
        (tmp_path / "password").write_text(f"{password}\n")
        (tmp_path / "bin/redis-server").symlink_to(redis_server())
        config = (root / "k8s/chart/files/redis.conf").read_text()
        config = config.replace("dir /data", f"dir {tmp_path}/data")
        config = config.replace("port 6379", f"port {port}\nbind 127.0.0.1")
        (tmp_path / "redis.conf").write_text(config)
        script = re.sub(
            r"/run/secrets/(rampart/)?rampart_redis_password",
            str(tmp_path / "password"),
            redis_script,
        )
        script = script.replace("/etc/redis/redis.conf", str(tmp_path / "redis.conf"))
        script = script.replace("/tmp/redis.conf", str(tmp_path / "tmp/redis.conf"))
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        child = subprocess.Popen(
            ["sh", "-ec", script],
            env={"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        running.append(child)
        return port, child

    yield run
    for child in running:
        child.terminate()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.processes
def test_redis_starts_with_durable_writes_and_a_password(start: Any, tmp_path: Path) -> None:
    port, child = start("correct-horse-battery")
    once = Retry(NoBackoff(), 0)
    with redis.Redis(port=port, password="correct-horse-battery", retry=once) as client:
        while True:
            assert child.poll() is None
            try:
                client.ping()
            except redis.ConnectionError:
                time.sleep(0.02)
            else:
                break
        assert client.config_get("append*")["appendfsync"] == "always"
        assert client.config_get("append*")["appendonly"] == "yes"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("maxmemory") == {"maxmemory": str(768 << 20)}
    with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    assert (tmp_path / "tmp/redis.conf").stat().st_mode & 0o077 == 0
    assert "horse" not in Path(f"/proc/{child.pid}/cmdline").read_text()


@pytest.mark.processes
def test_redis_does_not_start_without_a_password(start: Any) -> None:
    _, child = start("")
    assert child.wait(10) != 0
    assert b"password is empty" in child.stdout.read()


def test_redis_maxmemory_leaves_a_quarter_of_the_container_limit(manifests: Any) -> None:
    if "redis" not in manifests.components:
        return
    limit = manifests.pod("redis").container["resources"]["limits"]["memory"]
    config = manifests.data("rampart-redis")["redis.conf"]
    (most,) = re.findall(r"^maxmemory (\d+)mb$", config, re.MULTILINE)
    assert int(most) <= 0.75 * int(limit.removesuffix("Gi")) * 1024
