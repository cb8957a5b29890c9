"""Computed traffic equals the number of bytes that are really sent."""

import numpy as np

from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport
from rampart_fl.shared.protocol.traffic import claims, model_bytes, upload_bytes

SPEC = ModelSpec.of([("conv.weight", (3, 2, 2)), ("conv.bias", (3,)), ("fc", (5, 7))])


def test_computed_sizes_equal_encoded_sizes() -> None:
    vector_D = np.zeros(SPEC.dim, dtype=np.float32)
    assert model_bytes(SPEC) == len(wire.encode(SPEC, vector_D))
    report = ClientReport(
        samples=70, metrics={"loss_before": 0.12345678901234567, "test_samples": 9}
    )
    assert upload_bytes(SPEC, report) == len(wire.encode(SPEC, vector_D, claims(report)))
