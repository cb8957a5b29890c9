"""Prometheus metrics of one aggregator process."""

import asyncio
import shutil
import time
from functools import partial
from math import nan
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rampart_fl.shared.experiment.eviction import Decision
from rampart_fl.shared.protocol.messages import PHASES, Phase, RoundRecord


class ProcessMetrics:
    """All metrics of a process, in a separate registry so that tests can create several instances.

    Args:
        disk: a folder on the disk whose free space is measured; None to measure no disk.
    """

    def __init__(self, disk: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self._add_run(self.registry)
        self._add_clients(self.registry)
        self._add_rounds(self.registry)
        self._add_requests(self.registry)
        self._add_resources(self.registry, disk)
        self._create_counters()

    def _add_run(self, registry: CollectorRegistry) -> None:
        """Adds the gauges for the queue and for the current run."""
        self.round = Gauge("rampart_round", "Number of the current round", registry=registry)
        self.phase = Gauge("rampart_phase", "1 for the current phase", ["phase"], registry=registry)
        self.paused = Gauge(
            "rampart_paused", "1 if an operator has paused the current run", registry=registry
        )
        self.queued = Gauge("rampart_queued_runs", "Runs in the queue", registry=registry)
        self.held = Gauge(
            "rampart_waiting_for_disk",
            "1 if a run waits for disk space before it starts, or before its next round",
            registry=registry,
        )

    def _add_clients(self, registry: CollectorRegistry) -> None:
        """Adds the gauges that count clients."""
        self.clients = Gauge("rampart_clients", "Clients by state", ["state"], registry=registry)
        self.evictions = Gauge(
            "rampart_evicted_clients", "Clients barred permanently", registry=registry
        )
        self.quarantines = Gauge(
            "rampart_quarantined_clients",
            "Clients in quarantine or proposed for eviction",
            registry=registry,
        )
        self.proposals = Gauge(
            "rampart_proposals", "Evictions that wait for an operator", registry=registry
        )

    def _add_rounds(self, registry: CollectorRegistry) -> None:
        """Adds the metrics of finished rounds."""
        self.rounds = Counter("rampart_rounds", "Finished rounds", ["status"], registry=registry)
        self.verdicts = Counter(
            "rampart_verdicts", "Verdicts on updates by decision", ["decision"], registry=registry
        )
        self.steps = Histogram(
            "rampart_round_step_seconds",
            "Time per step of a round",
            ["step"],
            registry=registry,
            buckets=(0.001, 0.01, 0.1, 0.5, 1, 5, 30, 120, 600),
        )
        self.pool_bytes = Gauge(
            "rampart_pool_bytes", "Bytes of the update pools", registry=registry
        )

    def _add_requests(self, registry: CollectorRegistry) -> None:
        """Adds the metrics of requests, uploads and downloads."""
        self.requests = Histogram(
            "rampart_request_seconds",
            "Time per request, without long polls",
            ["route", "status"],
            registry=registry,
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
        )
        self.waiting = Gauge(
            "rampart_waiting_requests", "Long polls waiting now", registry=registry
        )
        self.uploads = Counter(
            "rampart_uploads", "Uploads by outcome", ["kind", "outcome"], registry=registry
        )
        self.reading = Gauge("rampart_uploads_reading", "Uploads being read now", registry=registry)
        self.bytes_in = Counter("rampart_received_bytes", "Bytes uploaded", registry=registry)
        self.bytes_out = Counter("rampart_sent_bytes", "Bytes of models sent", registry=registry)

    def _add_resources(self, registry: CollectorRegistry, disk: Path | None) -> None:
        """Adds the gauges for Redis, the event loop and the disk."""
        self.redis_up = Gauge(
            "rampart_redis_up", "1 if Redis answered this scrape", registry=registry
        )
        self.redis_memory = Gauge(
            "rampart_redis_memory_bytes",
            "Memory that Redis uses, and its limit (if Redis has a limit and tells it)",
            ["part"],
            registry=registry,
        )
        self.loop_lag = Gauge(
            "rampart_event_loop_lag_seconds", "Lateness of the event loop", registry=registry
        )
        self.disk = Gauge(
            "rampart_disk_bytes",
            "Size and free space of the disk with the blobs or their cache",
            ["part"],
            registry=registry,
        )
        if disk is not None:
            for part in ("free", "total"):
                self.disk.labels(part).set_function(partial(_disk_bytes, disk, part))

    def _create_counters(self) -> None:
        """Creates all counters at 0, so that `rate()` in Prometheus sees the first increment."""
        for status in ("published", "failed"):
            self.rounds.labels(status)
        for decision in get_args(Decision):
            self.verdicts.labels(decision)
        for kind in ("update", "probe"):
            self.uploads.labels(kind, "accepted")

    def observe_round(self, record: RoundRecord, pool_bytes: int | None) -> None:
        """Adds the figures of a finished round to the metrics.

        Args:
            record: the record of the round.
            pool_bytes: size of the round's pool in bytes; None if the round failed.
        """
        self.rounds.labels(record.status).inc()
        for step, seconds in record.timings.items():
            self.steps.labels(step).observe(seconds)
        for verdict in record.verdicts:
            self.verdicts.labels(verdict.decision).inc()
        if pool_bytes is not None:
            self.pool_bytes.set(pool_bytes)

    def set_phase(self, phase: Phase, round_: int, paused: bool) -> None:
        """Sets the gauges for the current round, its phase, and whether the run is paused."""
        self.round.set(round_)
        self.paused.set(paused)
        for name in PHASES:
            self.phase.labels(name).set(name == phase)

    def set_no_run(self) -> None:
        """Resets the gauges when no run is in progress; keeps the number of the last round."""
        for name in PHASES:
            self.phase.labels(name).set(name == "done")
        for gauge in (self.paused, self.evictions, self.quarantines, self.proposals):
            gauge.set(0)
        self.clients.labels("members").set(0)

    def set_redis_memory(self, used: int, limit: int) -> None:
        """Sets the gauges for the memory of Redis, in bytes; 0 means that a value is unknown."""
        for part, size in (("used", used), ("limit", limit)):
            self.redis_memory.labels(part).set(size or nan)

    async def watch_loop(self) -> None:
        """Measures the event loop's lag periodically until the task is cancelled."""
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.25)
            self.loop_lag.set(max(0.0, time.perf_counter() - started - 0.25))

    def text(self) -> bytes:
        """All metrics in Prometheus's exposition format."""
        return generate_latest(self.registry)


def _disk_bytes(folder: Path, part: str) -> float:
    try:
        return float(getattr(shutil.disk_usage(folder), part))
    except OSError:
        return nan  # If the disk fails, the process still reports its other metrics.
