"""What a client's part in a round weighs on the wire: bodies, without HTTP headers or compression.

Services know it from receipts and tickets, the simulator from the same formats.
"""

import json

from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Report


def claims(report: Report) -> dict[str, str]:
    """A report as it travels in the metadata of an upload."""
    return {"report": json.dumps(report.model_dump(mode="json", exclude_defaults=True))}


def model_bytes(spec: ModelSpec) -> int:
    """Size of a model as a client loads it.

    >>> model_bytes(ModelSpec.of([("weight", (100,))]))
    472
    """
    return len(wire.header(spec)) + wire.SIZES["F32"] * spec.dim


def upload_bytes(spec: ModelSpec, report: Report) -> int:
    """Size of a float32 upload with this report.

    >>> upload_bytes(ModelSpec.of([("weight", (100,))]), Report(samples=7, metrics={"loss": 0.5}))
    552
    """
    return len(wire.header(spec, "F32", claims(report))) + wire.SIZES["F32"] * spec.dim
