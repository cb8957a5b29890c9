"""Reads a run from a folder that `rampart up`, `rampart simulate` or `rampart export` wrote."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from rampart_fl.services.console.display.progress import Progress
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import BARRING
from rampart_fl.shared.families.registry import explain
from rampart_fl.shared.figures.client_metrics import KINDS, accuracy, errors, newer
from rampart_fl.shared.protocol.messages import RoundFacts, VerdictRecord

EXPERIMENT = "experiment.toml"
RECORDS = ("rounds.jsonl", "records.jsonl")
FIGURES = ("result.json", "figures.json")
PROVENANCE = "provenance.json"
MEMBERS = "members.json"
MODELS_DIGESTS = {
    "models_digest": "Digest of the final models",
    "blobs_digest": "Digest of the final models' blobs",
}
"""The metrics that identify a run's final models, each with its label. A simulation computes the
digest from the models' numbers; `rampart up` computes it from their blobs."""


@dataclass(frozen=True)
class FinishedRun:
    """A run stored on disk.

    Args:
        folder: the run's folder.
        experiment: the experiment.
        records: the records of all rounds, without mixing weights.
        figures: the final metrics; empty if the run was interrupted.
        provenance: who ran the experiment, and with which software versions; empty unless the run
            was exported.
        slots: the clients' slots.
        digests: SHA-256 of each file that was read, keyed by the file's name.
    """

    folder: Path
    experiment: Experiment
    records: list[RoundFacts]
    figures: dict[str, Any]
    provenance: dict[str, Any]
    slots: dict[str, int]
    digests: dict[str, str]

    @cached_property
    def honest(self) -> list[str]:
        """The honest clients: the experiment places no attacker in their slots."""
        return honest_clients(self.experiment, self.slots)

    @cached_property
    def curves(self) -> dict[str, list[float | None]]:
        """The accuracy (or error) of each model after every round, over the honest clients.

        The keys are the names of metrics, such as `accuracy_customized`. Models that no client
        measured are left out.
        """
        after = newer(record.metrics for record in self.records)
        points = [curve_point(newest, self.honest) for newest in after]
        names = {name for point in points for name, value in point.items() if value is not None}
        return {
            name: [point[name] for point in points]
            for name in (points[0] if points else ())
            if name in names
        }

    @property
    def barrings(self) -> Iterator[tuple[int, VerdictRecord]]:
        """The verdicts by which clients were barred: pairs (round, verdict), sorted by round."""
        for record in self.records:
            yield from ((record.round, v) for v in record.verdicts if v.decision in BARRING)

    @cached_property
    def model_digests(self) -> dict[str, str]:
        """Digests of the final models, keyed by name: `global`, a client's id or a group's name."""
        for record in reversed(self.records):
            if record.status == "published":
                return {name: digest for name, digest in record.models_by_name.items() if digest}
        return {}

    @cached_property
    def models(self) -> dict[str, Path]:
        """The files of the final models, keyed by name; models without a file are left out.

        Raises:
            ConfigurationError: a file's digest differs from the digest in the records.
        """
        paths = {}
        for name, digest in self.model_digests.items():
            exported = self.folder / "models" / f"{quote(name, safe='')}.safetensors"
            blobs = self.folder.glob(f"blobs/**/{digest[:2]}/{digest}")
            path = exported if exported.is_file() else next(blobs, None)
            if path is not None:
                if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                    raise ConfigurationError(f"{path} is damaged: its digest is not {digest}")
                paths[name] = path
        return paths

    @property
    def evicted(self) -> list[str]:
        """The clients that are evicted at the end of the run.

        If the run has no final metrics, the result comes from the verdicts. It then also contains
        evicted clients that an operator reinstated.
        """
        known: list[str] | None = self.figures.get("evicted")
        if known is not None:
            return known
        return sorted({v.client for _, v in self.barrings if v.decision == "evicted"})


def honest_clients(experiment: Experiment, slots: Mapping[str, int]) -> list[str]:
    """The honest clients: the experiment places no attacker in their slots."""
    hostile = {slot for slot, role in enumerate(experiment.roles) if role is not None}
    return [client for client, slot in slots.items() if slot not in hostile]


def curve_point(
    newest: Mapping[str, Mapping[str, float]], honest: Sequence[str]
) -> dict[str, float | None]:
    """The accuracy and the error of each model, keyed by metric, such as `accuracy_customized`.

    Args:
        newest: each client's newest metrics after a round.
        honest: the clients to include.
    """
    wrong = errors(newest, honest)
    accuracies = {f"accuracy_{kind}": accuracy(newest, honest, kind) for kind in KINDS}
    return accuracies | {f"error_{kind}": wrong.get(kind) for kind in KINDS}


def is_run(folder: Path) -> bool:
    """Whether a folder contains a run."""
    return any((folder / name).is_file() for name in RECORDS)


def read_run(folder: Path) -> FinishedRun:
    """Reads the run in a folder.

    Raises:
        ConfigurationError: the folder holds no run, or one of its files is damaged.
    """
    digests: dict[str, str] = {}

    def lines(*names: str) -> Iterator[bytes]:
        """The lines of the first file in `names` that exists; no lines if no such file exists."""
        for name in names:
            if (folder / name).is_file():
                whole = hashlib.sha256()
                with (folder / name).open("rb") as file:
                    for line in file:
                        whole.update(line)
                        yield line
                digests[name] = whole.hexdigest()
                return

    def table(*names: str) -> Any:
        text = b"".join(lines(*names))
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise ConfigurationError(f"{folder / names[0]}: not JSON: {error}") from None

    if not is_run(folder):
        raise ConfigurationError(
            f"{folder} holds no run: it has neither {' nor '.join(RECORDS)}; "
            "give the output folder of `rampart up` or `rampart simulate --out`"
        )
    text = b"".join(lines(EXPERIMENT)).decode()
    try:
        experiment = Experiment.parse(text)
        records = list[RoundFacts]()
        with Progress("rounds read", experiment.rounds) as progress:
            for line in lines(*RECORDS):
                records.append(_facts(line))
                progress.show(len(records))
    except ConfigurationError as error:
        raise ConfigurationError(f"{folder / EXPERIMENT}: {error}") from None
    except ValidationError as error:
        raise ConfigurationError(f"{folder}: a record is damaged: {explain(error)}") from None
    except ValueError as error:
        raise ConfigurationError(f"{folder}: a record is damaged: {error}") from None
    members = table(MEMBERS)
    slots = {name: slot for slot, name in enumerate(experiment.client_names)}
    if members is not None:
        slots = {one["client_id"]: one["slot"] for one in members if one["slot"] is not None}
    figures, provenance = table(*FIGURES) or {}, table(PROVENANCE) or {}
    return FinishedRun(folder, experiment, records, figures, provenance, slots, digests)


def _facts(line: bytes) -> RoundFacts:
    fields = json.loads(line)
    # Leave out the mixing weights. They are the largest part of a record, because there is one
    # weight for every pair of clients.
    fields.pop("mixing", None)
    return RoundFacts.model_validate(fields)
