"""Metrics: their values after a finished round."""

import shutil
from pathlib import Path

from rampart_fl.services.aggregator.metrics import ProcessMetrics
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord


def test_metrics_count_rounds_phases_and_verdicts() -> None:
    metrics = ProcessMetrics()
    metrics.set_phase("collecting", 7, paused=True)
    decisions = ("evicted", "abstained", "quarantined", "proposed", "abstained")
    verdicts = [
        VerdictRecord.model_validate(
            {"client": "a", "decision": decision, "detector": "d", "reason": "r"}
            | {"score": 1, "threshold": 0}
        )
        for decision in decisions
    ]
    record = RoundRecord(round=7, status="published", verdicts=verdicts, timings={"load": 0.02})
    metrics.observe_round(record, 80)
    metrics.observe_round(RoundRecord(round=8, status="failed"), None)
    lines = metrics.text().decode().splitlines()
    for line in (
        'rampart_phase{phase="collecting"} 1.0',
        'rampart_phase{phase="done"} 0.0',
        "rampart_round 7.0",
        "rampart_paused 1.0",
        "rampart_pool_bytes 80.0",
        'rampart_rounds_total{status="published"} 1.0',
        'rampart_rounds_total{status="failed"} 1.0',
        'rampart_verdicts_total{decision="evicted"} 1.0',
        'rampart_verdicts_total{decision="abstained"} 2.0',
        'rampart_verdicts_total{decision="quarantined"} 1.0',
        'rampart_verdicts_total{decision="proposed"} 1.0',
        'rampart_round_step_seconds_bucket{le="0.1",step="load"} 1.0',
        'rampart_round_step_seconds_bucket{le="0.01",step="load"} 0.0',
    ):
        assert line in lines


def test_gauges_of_a_run_are_reset_when_it_has_ended() -> None:
    metrics = ProcessMetrics()
    metrics.set_phase("collecting", 7, paused=True)
    metrics.proposals.set(2)
    metrics.clients.labels("members").set(5)
    metrics.set_no_run()
    lines = metrics.text().decode().splitlines()
    for line in (
        'rampart_phase{phase="collecting"} 0.0',
        'rampart_phase{phase="done"} 1.0',
        "rampart_round 7.0",
        "rampart_paused 0.0",
        "rampart_proposals 0.0",
        'rampart_clients{state="members"} 0.0',
    ):
        assert line in lines


def test_memory_of_redis_without_a_known_limit_has_no_limit() -> None:
    metrics = ProcessMetrics()
    metrics.set_redis_memory(100, 0)
    text = metrics.text().decode()
    assert 'rampart_redis_memory_bytes{part="used"} 100.0' in text
    assert 'rampart_redis_memory_bytes{part="limit"} NaN' in text


def test_counters_that_alerts_watch_begin_at_zero() -> None:
    lines = ProcessMetrics().text().decode().splitlines()
    for line in (
        'rampart_rounds_total{status="failed"} 0.0',
        'rampart_verdicts_total{decision="abstained"} 0.0',
        'rampart_uploads_total{kind="update",outcome="accepted"} 0.0',
    ):
        assert line in lines


def test_disk_space_of_the_blob_folder_is_measured(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    metrics = ProcessMetrics(folder)
    free, total = (
        metrics.registry.get_sample_value("rampart_disk_bytes", {"part": part})
        for part in ("free", "total")
    )
    assert free != free and total != total, "there is no such folder"
    folder.mkdir()
    value = metrics.registry.get_sample_value("rampart_disk_bytes", {"part": "total"})
    assert value == shutil.disk_usage(folder).total
    assert "rampart_disk_bytes{" not in ProcessMetrics().text().decode()


def test_no_series_is_kept_for_a_run_or_a_client() -> None:
    """Otherwise a process would keep the series of all runs that it has ever seen."""
    metrics, record = (
        ProcessMetrics(),
        RoundRecord(round=0, status="published", timings={"load": 1.0}),
    )
    metrics.observe_round(record, None)
    first = metrics.text().count(b"\n")
    for number in range(50):
        metrics.observe_round(record.model_copy(update={"round": number}), None)
    assert metrics.text().count(b"\n") == first
    families = metrics.registry.collect()
    labels = {name for family in families for one in family.samples for name in one.labels}
    assert labels <= {
        "phase",
        "state",
        "kind",
        "outcome",
        "route",
        "status",
        "step",
        "decision",
    } | {*("part", "le")}
