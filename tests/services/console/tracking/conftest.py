"""A small finished run with every kind of file that `rampart up` or an export leaves."""

import hashlib
import json
from pathlib import Path

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.protocol.messages import RoundRecord

SMALL = """
name = "small"
rounds = 2
model = { name = "mlp", hidden = [8] }
[data]
dataset = "digits"
clients = 3
[server]
detectors = ["robust_distance"]
"""
MODEL = b"the bytes of a model"
DIGEST = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a run of two rounds, in which one client is evicted."""
    folder = tmp_path / "small-1"
    blobs = folder / "blobs/local" / DIGEST[:2]
    blobs.mkdir(parents=True)
    (blobs / DIGEST).write_bytes(MODEL)
    (folder / "experiment.toml").write_text(to_toml(Experiment.parse(SMALL).tables()))
    clients = ["client-00", "client-01", "client-02"]
    verdict = {"detector": "robust_distance", "score": 2.0, "threshold": 1.0, "reason": "far | off"}
    records = [
        RoundRecord.model_validate(
            {
                "round": number,
                "status": "published",
                "participants": clients,
                "verdicts": [{"client": "client-02", "decision": decision, **verdict}],
                "metrics": {"client-00": {"test_samples": 4.0, "correct_local": 2.0 + number}},
                "norms": dict.fromkeys(clients, 1.5),
                "models": {"global": DIGEST},
                "mixing": {"client-00": {"client-01": 1.0}},
                "opened_at": 1000.0 + number,
                "closed_at": 1000.5 + number,
            }
        )
        for number, decision in enumerate(["accepted", "evicted"])
    ]
    lines = "".join(record.model_dump_json() + "\n" for record in records)
    (folder / "rounds.jsonl").write_text(lines)
    figures = {"accuracy": 0.75, "evicted": ["client-02"], "blobs_digest": "d" * 64, "fnr": None}
    (folder / "result.json").write_text(json.dumps(figures))
    return folder
