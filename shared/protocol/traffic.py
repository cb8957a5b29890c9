"""Sizes in bytes of the models and updates that a client transfers in a round.

Each size is the size of the HTTP body before compression, without headers. The services get sizes
from receipts and tickets; the simulator computes the same sizes from the file formats.
"""

import json

from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport


def claims(report: ClientReport) -> dict[str, str]:
    """Encodes a report as the metadata of an upload."""
    return {"report": json.dumps(report.model_dump(mode="json", exclude_defaults=True))}


def model_bytes(spec: ModelSpec) -> int:
    """Size in bytes of a model as a client downloads it.

    >>> model_bytes(ModelSpec.of([("weight", (100,))]))
    472
    """
    return len(wire.header(spec)) + wire.SIZES["F32"] * spec.dim


def upload_bytes(spec: ModelSpec, report: ClientReport) -> int:
    """Size in bytes of a float32 upload with this report.

    >>> report = ClientReport(samples=7, metrics={"loss": 0.5})
    >>> upload_bytes(ModelSpec.of([("weight", (100,))]), report)
    552
    """
    return len(wire.header(spec, "F32", claims(report))) + wire.SIZES["F32"] * spec.dim
