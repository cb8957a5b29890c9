"""`rampart up`: runs one experiment with real processes on this machine, and reports metrics."""

import hashlib
import json
import sys
import time
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rampart_fl.services.console import downloads
from rampart_fl.services.console.connection.operated_run import require_finished
from rampart_fl.services.console.display.live_table import LiveTable
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.figures.final import costs, decisions, final_figures
from rampart_fl.shared.figures.run_result import UpSummary
from rampart_fl.shared.figures.votes import vote_figures
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.validation import validate

POLL = 0.3
"""Seconds between polls of a running federation."""


@dataclass(frozen=True)
class UpResult:
    """The result of a run.

    Args:
        summary: the run's final metrics; with --json, the command prints them as one line.
        records: the record of every round.
        folder: folder of state, logs and records.
    """

    summary: UpSummary
    records: list[RoundRecord]
    folder: Path


def run_folder(experiment: Experiment, parent: Path) -> Path:
    """A new folder for one run."""
    folder = parent / f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.partition('.')[0]}.{number}")
    durable.make_folder(parent)
    folder.mkdir()
    return folder


def up(
    experiment: Experiment, folder: Path, per_process: int = 10, open_page: bool = False
) -> UpResult:
    """Runs an experiment to its end, stops all processes, and writes the records to the folder.

    Args:
        experiment: the experiment.
        folder: folder for state, logs and records.
        per_process: maximum number of clients per process.
        open_page: whether to open the operators' page in a browser; the federation then keeps
            running until Ctrl-C.
    Raises:
        RunUnfinished: the run failed or was cancelled; its records are in the folder.
    """
    experiment = validate(experiment)
    # Download missing data sets here. Otherwise, each process would download them for itself.
    downloads.fetch_all([experiment])
    started = time.monotonic()
    hostile = [c for c, r in zip(experiment.client_names, experiment.roles, strict=True) if r]
    with LocalFederation(experiment, folder, per_process) as federation, LiveTable(hostile) as view:
        sys.stderr.write(
            f"Operators' page: {federation.url}/  sign in with the token {federation.token}\n"
        )
        try:
            if open_page:
                webbrowser.open(f"{federation.url}/")
            federation.start_clients()
            records = follow(federation, view)
            status, info = federation.run.status(), federation.run.info()
            evaluations = federation.run.evaluations()
            if open_page:
                keep(federation)
        except Unavailable:
            federation.processes.check("redis", "aggregator")
            raise
    lines = (f"{record.model_dump_json()}\n".encode() for record in records)
    durable.replace(folder / "rounds.jsonl", lines)
    durable.replace_text(folder / "evaluations.json", json.dumps(evaluations, indent=1))
    if info.state != "finished":
        sys.stderr.write(f"The records of the run are in {folder}\n")
    # Stop here if the run failed or was cancelled. Like an interrupted run, it gets no result.json.
    require_finished(info)
    published = [record for record in records if record.status == "published"]
    summary: UpSummary = {
        "experiment": experiment.name,
        "experiment_digest": experiment.digest(),
        "blobs_digest": blobs_digest(published[-1]) if published else None,
        "rounds": len(records),
        **final_figures(
            experiment,
            [record.metrics for record in records],
            status.evicted,
            tested=[record.tested for record in records],
        ),
        **decisions(experiment, records),
        "failed_rounds": sum(record.status == "failed" for record in records),
        **costs(records),
        **vote_figures(evaluations, sides(experiment)[0]),
        "seconds": round(time.monotonic() - started, 3),
        "records": str(folder),
    }
    durable.replace_text(folder / "result.json", json.dumps(summary, indent=1))
    return UpResult(summary, records, folder)


def keep(federation: LocalFederation) -> None:
    """Keeps a federation running after its run has ended, until the user presses Ctrl-C."""
    sys.stderr.write(f"The run has ended. Its page stays at {federation.url}/ until Ctrl-C.\n")
    with suppress(KeyboardInterrupt):
        while True:
            federation.processes.check("redis", "aggregator")
            time.sleep(POLL)


def follow(federation: LocalFederation, view: LiveTable) -> list[RoundRecord]:
    """Shows a run until it has ended; returns the records of its rounds."""
    records: list[RoundRecord] = []
    while True:
        federation.processes.check("redis", "aggregator")
        status = federation.run.status()
        since = records[-1].round + 1 if records else 0
        records += federation.run.records(since, status.round)
        view.show(status, records)
        if status.phase == "done":
            return records
        time.sleep(POLL)


def blobs_digest(last: RoundRecord) -> str:
    """One digest over the blobs of all final models: the global model and all customized models.

    Two runs with the same models have the same digest. A simulation's `models_digest` is computed
    from the numbers of the models instead, so it differs from this digest.
    """
    models = {"global": last.models.get("global", ""), "customized": last.customized}
    return hashlib.sha256(json.dumps(models, sort_keys=True).encode()).hexdigest()
