"""The servers of a federation on this machine, and the files in the federation's folder."""

import json
from pathlib import Path

import pytest
import redis

from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.servers import LocalServers

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("name", ["a folder", 'it\'s "a" \\ folder', "ä\tb\nc", "#1 \x01 \\x41"])
def test_redis_keeps_its_data_in_a_folder_with_any_name(tmp_path: Path, name: str) -> None:
    servers = LocalServers(tmp_path / name)
    try:
        servers.start_redis()
        with redis.Redis(port=servers.redis_port, password=servers.redis_password) as client:
            assert client.config_get("save") == {"save": ""}
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
            client.set("key", "value")
    finally:
        servers.stop()
    data = tmp_path / name / "redis"
    assert "value" in (data / "appendonly.aof").read_text()
    assert (data / "redis.conf").stat().st_mode & 0o777 == 0o600


def test_console_file_exists_only_while_the_servers_run(tmp_path: Path) -> None:
    file = tmp_path / "with space/console.json"
    for _ in range(2):
        with LocalServers(tmp_path / "with space", processes=ForkedProcesses) as servers:
            assert json.loads(file.read_text()) == {"url": servers.url, "token": servers.token}
        assert not file.exists()
