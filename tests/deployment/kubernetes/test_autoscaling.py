"""The adapter's rule serves the metric by which Kubernetes scales the api."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.metrics import ProcessMetrics
from tests.deployment.kubernetes.conftest import Manifests
from tests.deployment.monitoring.promql import parse


@pytest.fixture(scope="module")
def rule(root: Path, load: Callable[[str], list[Any]]) -> Any:
    """The rule of the example."""
    (values,) = load((root / "k8s/prometheus-adapter.yaml").read_text())
    (custom,) = values["rules"]["custom"]
    return custom


@pytest.fixture(scope="module")
def cloud(root: Path, load: Callable[[str], list[Any]]) -> Manifests:
    """The objects of the preset that scales the api."""
    return Manifests(load((root / "k8s/manifests/cloud.yaml").read_text()))


def test_adapter_rule_serves_the_measured_metric_that_scales_the_api(
    rule: Any, cloud: Manifests
) -> None:
    ((series, matchers),) = parse(rule["seriesQuery"]).series
    assert re.search(rf"^{series} ", ProcessMetrics().text().decode(), re.MULTILINE)
    (scaler,) = cloud.of("HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    assert metric["type"] == "Pods"
    assert metric["pods"]["metric"] == {"name": series}
    labels = {label for label, *_ in matchers}
    assert rule["resources"]["overrides"] == {name: {"resource": name} for name in labels}
    # Prometheus gives these labels to targets of a ServiceMonitor unless a rule changes them.
    assert labels == {"namespace", "pod"}
    (monitor,) = cloud.of("ServiceMonitor")
    for endpoint in monitor["spec"]["endpoints"]:
        assert not labels & {one["targetLabel"] for one in endpoint["relabelings"]}


def test_adapter_query_selects_pods_of_a_namespace(rule: Any) -> None:
    query = rule["metricsQuery"]
    for placeholder, text in {
        "<<.Series>>": "rampart_waiting_requests",
        "<<.LabelMatchers>>": 'namespace="rampart",pod=~"rampart-api-a|rampart-api-b"',
        "<<.GroupBy>>": "pod",
    }.items():
        assert placeholder in query
        query = query.replace(placeholder, text)
    assert "<<" not in query
    assert [name for name, _ in parse(query).series] == ["rampart_waiting_requests"]
