"""Alerts and dashboards name series, labels and values that the code measures."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from rampart_fl.services.aggregator.metrics import ProcessMetrics
from rampart_fl.shared.experiment.eviction import Decision
from rampart_fl.shared.protocol.messages import PHASES
from tests.deployment.monitoring.promql import Wrong, parse

OF_TARGETS = {"federation", "instance", "job"}
"""Labels that Prometheus adds to every series."""
VALUES = {
    "decision": set(get_args(Decision)),
    "outcome": {"accepted"},
    "part": {"free", "total", "used", "limit"},
    "phase": set(PHASES),
    "state": {"registered"},
    "status": {"published", "failed"},
}
"""The values that alerts and dashboards may compare labels with."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of every series that a process exposes, keyed by the series' name."""
    metrics = ProcessMetrics(tmp_path_factory.mktemp("blobs"))
    table: dict[str, set[str]] = {"up": set()}
    for family in metrics.registry._collector_to_names:
        names, labels = metrics.registry._collector_to_names[family], set(family._labelnames)
        for name in names:
            table[name] = labels | ({"le"} if name.endswith("_bucket") else set())
    return table


def test_measured_series_have_the_expected_labels(measured: dict[str, set[str]]) -> None:
    assert measured["rampart_rounds_total"] == {"status"}
    assert measured["rampart_request_seconds_bucket"] == {"route", "status", "le"}
    assert measured["rampart_redis_up"] == set()


def test_expressions_use_only_measured_series_and_labels(
    expressions: list[str], measured: dict[str, set[str]]
) -> None:
    assert len(expressions) > 30
    for expression in expressions:
        result, known = parse(expression), set[str]()
        assert result.series, expression
        for name, matchers in result.series:
            assert name in measured, name
            known |= measured[name] | OF_TARGETS
            for label, operator, value in matchers:
                assert label in measured[name] | OF_TARGETS, f"{name}{{{label}}}"
                if label in measured[name]:
                    assert value and set(value.split("|")) <= VALUES[label], f"{label}: {value}"
                    assert operator == "=~" or "|" not in value
        assert result.labels <= known, expression


def test_every_dashboard_panel_selects_one_federation(
    dashboards: dict[str, dict[str, Any]],
) -> None:
    for dashboard in dashboards.values():
        variables = {one["name"]: one["query"] for one in dashboard["templating"]["list"]}
        assert variables["federation"] == "label_values(rampart_round, federation)"
        for panel in dashboard["panels"]:
            assert panel["description"] and panel["datasource"]["uid"] == "${datasource}"
            for target in panel["targets"]:
                for _, matchers in parse(target["expr"]).series:
                    assert ("federation", "=", "$federation") in matchers
                legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                assert legend <= parse(target["expr"]).labels


def test_panels_do_not_overlap_and_dashboards_have_unique_ids(
    dashboards: dict[str, dict[str, Any]],
) -> None:
    uids = [dashboard["uid"] for dashboard in dashboards.values()]
    assert len(set(uids)) == len(uids) == 2
    for dashboard in dashboards.values():
        cells = set[tuple[int, int]]()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            own = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert max(x for x, _ in own) < 24 and not own & cells, panel["title"]
            cells |= own


def test_thresholds_in_panel_descriptions_match_the_alerts(
    alerts: list[dict[str, Any]], dashboards: dict[str, dict[str, Any]]
) -> None:
    limits = {
        rule["alert"]: float(re.findall(r"[<>] ([\d.]+)", rule["expr"])[-1])
        for rule in alerts
        if re.search(r"[<>] ([\d.]+)", rule["expr"])
    }
    thresholds = 0
    for dashboard in dashboards.values():
        for panel in dashboard["panels"]:
            text = panel["description"]
            for name, number, unit in re.findall(r"(Rampart\w+) fires \w+ ([\d.]+) (%|s)", text):
                assert float(number) / (100 if unit == "%" else 1) == limits[name]
                thresholds += 1
    assert thresholds == 3


@pytest.mark.parametrize(
    "text",
    [
        "rampart_round}",
        "sum by (a rampart_round)",
        'rampart_round{phase="a}',
        "increase(rampart_round)",
        "rampart_round[5m]",
        "rampart_round and",
        "rampart_round rampart_phase",
        "rampart_round{phase=collecting}",
        "",
    ],
)
def test_parser_rejects_invalid_expressions(text: str) -> None:
    with pytest.raises(Wrong):
        parse(text)


def test_parser_finds_series_and_labels() -> None:
    result = parse('max by (a) (x{b="c", d!="e"} offset 1h) > 0.5 unless on (f) rate(y[5m])')
    assert result.series == [("x", [("b", "=", "c"), ("d", "!=", "e")]), ("y", [])]
    assert result.labels == {"a", "f"}


def test_every_alert_has_a_section_in_the_runbook(root: Path, alerts: list[dict[str, Any]]) -> None:
    page = (root / "docs/runbook.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "runbook"}
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        section = sections[rule["alert"]]
        for part in ("**Meaning.**", "**Look.**", "**Act.**"):
            assert part in section, f"{rule['alert']} has no {part}"
        for name in re.findall(r"`(rampart_[a-z_]+)", section):
            assert name in rule["expr"], f"{rule['alert']} does not watch {name}"
