"""Prometheus scrapes a federation: every series of the dashboards arrives, and an alert fires.

Needs prometheus, which Debian's package `prometheus` has.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from rampart_fl.services.console.launcher.processes import free_port
from tests.integration.in_process_federation import (
    Hold,
    Hosted,
    collecting,
    experiment,
    host,
    until,
)

pytestmark = pytest.mark.processes
NAMES = ["ada", "bob"]
LATER = "rampart_round_step_seconds"
"""The series that begin with the first published round."""
Ask = Callable[[str], Any]


@pytest.fixture
def hosted(tmp_path: Path, redis_url: str) -> Iterator[Hosted]:
    """A federation whose clients wait in the first round."""
    running = experiment(2, phases=collecting(max=3600))
    with host(running, tmp_path, redis_url) as hosted:
        hosted.hold = Hold(0)
        hosted.scripted(NAMES, hold=hosted.hold)
        hosted.wait("collecting", 0)
        yield hosted


@pytest.fixture
def prometheus(root: Path, hosted: Hosted, tmp_path: Path) -> Iterator[Ask]:
    """A Prometheus that scrapes the federation each second; asks it for `data` at a path."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on the path: nobody scrapes a federation or fires an alert")
    settings = yaml.safe_load((root / "monitoring/prometheus.yaml").read_text())
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(root / "monitoring/alerts.yaml")]
    (scraped,) = settings["scrape_configs"]
    del scraped["dns_sd_configs"]
    scraped["static_configs"] = [{"targets": [hosted.url.removeprefix("http://")]}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    port = free_port()
    child = subprocess.Popen(
        [
            *(program, f"--config.file={tmp_path}/prometheus.yaml", "--log.level=warn"),
            *(f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"),
        ]
    )

    def ask(path: str) -> Any:
        assert child.poll() is None, "prometheus has ended"
        answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=60)
        return answer.raise_for_status().json()["data"]

    def ready() -> bool:
        try:
            return bool(ask("status/buildinfo"))
        except httpx.HTTPError:
            return False

    try:
        until(ready)
        yield ask
    finally:
        child.terminate()
        child.wait()


def test_series_arrive_and_a_failed_round_fires_its_alert(
    prometheus: Ask, hosted: Hosted, expressions: list[str]
) -> None:
    named = {name for text in expressions for name in re.findall(r"\brampart_\w+", text)}
    wanted = {name for name in named if not name.startswith(LATER)}
    until(lambda: wanted <= set(prometheus("label/__name__/values")))

    def firing() -> set[str]:
        """The alerts that fire: those with a `for` clause may be pending while clients wait."""
        alerts = prometheus("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    assert firing() == set()
    hosted.expire()
    hosted.wait("collecting", 1)
    until(lambda: "RampartRoundFails" in firing())
    hosted.hold.on = False
    hosted.wait()
    until(lambda: named <= set(prometheus("label/__name__/values")))
