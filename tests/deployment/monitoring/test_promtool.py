"""promtool accepts the rules, the expressions and the settings, and alerts fire as specified.

Needs promtool, which Debian's package `prometheus` has.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.processes


def run(*command: str, cwd: Path) -> None:
    """Runs promtool; its output is the reason why a test fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    """A folder with the rules."""
    shutil.copy(root / "monitoring/alerts.yaml", tmp_path)
    return tmp_path


def test_alerts_fire_as_specified_in_firing_yaml(promtool: str, folder: Path) -> None:
    shutil.copy(Path(__file__).with_name("firing.yaml"), folder)
    run(promtool, "test", "rules", "firing.yaml", cwd=folder)


def test_every_expression_is_valid_promql(
    promtool: str, folder: Path, expressions: list[str]
) -> None:
    rules: list[Any] = [
        {"record": f"expression_{n}", "expr": text.replace("$__rate_interval", "5m")}
        for n, text in enumerate(expressions)
    ]
    groups = {"groups": [{"name": "expressions", "rules": rules}]}
    (folder / "expressions.yaml").write_text(yaml.safe_dump(groups))
    run(promtool, "check", "rules", "expressions.yaml", cwd=folder)


def test_prometheus_settings_are_valid(promtool: str, root: Path, folder: Path) -> None:
    settings = (root / "monitoring/prometheus.yaml").read_text()
    (folder / "prometheus.yaml").write_text(settings.replace("/etc/prometheus/", ""))
    run(promtool, "check", "config", "prometheus.yaml", cwd=folder)
