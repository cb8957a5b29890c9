"""Exports one run to a folder that can be read without the federation."""

import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rampart_fl.services.console.reports.folder import new_folder
from rampart_fl.services.console.reports.run_reader import RunReader
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.protocol.runs import OVER


class DigestMismatch(RampartError):
    """The aggregator sent a model that differs from the model in the run's record."""

    slug = "damaged"
    title = "Damaged"


def export(reader: RunReader, path: Path) -> dict[str, Any]:
    """Writes an ended run to a new folder; returns the content of `provenance.json`.

    The folder contains `run.json`, `experiment.toml`, `figures.json`, `rounds.jsonl` (one line per
    round), `members.json`, `evaluations.json`, `provenance.json`, `models/` (the final models) and
    `SHA256SUMS` (the digests of all other files).

    Raises:
        ConfigurationError: the run has not ended, or the folder is not empty.
        DigestMismatch: the aggregator sent a model that differs from the model in the run's last
            record.
    """
    info = reader.info
    if info.state not in OVER:
        raise ConfigurationError(f"run {info.run} is {info.state}; export it after it has ended")
    models: dict[str, str] = {}

    def lines() -> Iterator[str]:
        for record in reader.records(mixing=True):
            if record.status == "published":
                models.clear()
                models.update(record.models_by_name)
            yield record.model_dump_json()

    with new_folder(path) as folder:
        folder.json(info.model_dump(mode="json"), "run.json")
        folder.text(to_toml(reader.experiment.tables()), "experiment.toml")
        folder.json([one.model_dump(mode="json") for one in reader.members], "members.json")
        folder.lines(lines(), "rounds.jsonl")
        folder.json(reader.figures, "figures.json")
        folder.json(reader.evaluations, "evaluations.json")
        for name, digest in sorted(models.items()):
            content = reader.run.model(digest)
            if folder.write([content], "models", f"{name}.safetensors") != digest:
                raise DigestMismatch(
                    f"model {name} of run {info.run} does not have the digest {digest}"
                )
        provenance = {
            "run": info.run,
            "experiment_digest": info.experiment,
            "submission": info.submission,
            "submitted_by": info.submitted_by,
            "submitted_at": info.submitted_at,
            "started_at": info.started_at,
            "ended_at": info.ended_at,
            "models": models,
            "packages": reader.experiment.packages,
            "aggregator": reader.run.connection.url,
            "exported_by": reader.run.connection.whoami().name,
            "exported_at": time.time(),
            "versions": {"rampart-fl": version("rampart-fl"), "python": platform.python_version()},
        }
        folder.json(provenance, "provenance.json")
    return provenance
