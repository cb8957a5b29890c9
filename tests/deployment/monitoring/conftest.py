"""The alerts and dashboards, with all their expressions."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def alerts(root: Path, load: Callable[[str], list[Any]]) -> list[dict[str, Any]]:
    """Every alert rule."""
    (file,) = load((root / "monitoring/alerts.yaml").read_text())
    return [rule for group in file["groups"] for rule in group["rules"]]


@pytest.fixture(scope="session")
def dashboards(root: Path) -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file."""
    files = sorted((root / "monitoring/dashboards").glob("*.json"))
    return {path.stem: json.loads(path.read_text()) for path in files}


@pytest.fixture(scope="session")
def expressions(alerts: list[dict[str, Any]], dashboards: dict[str, dict[str, Any]]) -> list[str]:
    """Every expression of an alert or a dashboard."""

    def collected() -> Iterator[str]:
        yield from (rule["expr"] for rule in alerts)
        for dashboard in dashboards.values():
            for panel in dashboard["panels"]:
                yield from (target["expr"] for target in panel["targets"])

    return list(collected())


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool, Prometheus's own checker."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on the path: only our own parser reads alerts and dashboards")
    return program
