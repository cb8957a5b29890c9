"""Reads models and updates from blobs onto the worker's device.

Legend: D coordinates.
"""

import numpy as np
import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import BlobReader, converted_disk_errors
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.robust.shards import Part


class Vectors:
    """Reads the blobs of one run as vectors.

    Args:
        blobs: the run's blobs.
        spec: the tensors that make up a vector.
        device: the device of the vectors.
        part: which coordinates are read; None for all coordinates.
    """

    def __init__(
        self, blobs: BlobReader, spec: ModelSpec, device: torch.device, part: Part | None = None
    ) -> None:
        self._blobs = blobs
        self._spec = spec
        self._device = device
        self._here = Part(spec.dim, 0, spec.dim).here if part is None else part.here

    def read(self, digest: str, out_D: Tensor | None = None) -> Tensor:
        """Reads a blob as a vector (D,), into `out_D` if given."""
        dim = self._here.stop - self._here.start
        target_D = torch.empty(dim, device=self._device) if out_D is None else out_D
        host_D = target_D.numpy() if target_D.device.type == "cpu" else np.empty(dim, "f4")
        with converted_disk_errors(FileNotFoundError), self._blobs.open(digest) as file:
            size = file.seek(0, 2)
            file.seek(0)
            head = wire.read_stored_header(file, size, self._spec)
            wire.read_vector(file, head, host_D, self._here.start)
        if target_D.device.type != "cpu":
            target_D.copy_(torch.from_numpy(host_D))
        return target_D
