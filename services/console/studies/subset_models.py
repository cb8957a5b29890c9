"""Keeps the models of client subsets in files, so that an interrupted certificate can continue."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rampart_fl.services.console.studies.batch import run_all
from rampart_fl.services.console.studies.pools import Pool
from rampart_fl.services.console.studies.start_file import folder_of
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.simulation.certification import Subset

MODEL = "model"
"""The name of the only tensor in a file."""


class SubsetModels:
    """Trains each subset's model, unless a file already holds this model.

    Args:
        experiment: the experiment of the certificate.
        folder: the folder for the files, one per subset.
        pool: where to train the subsets; by default, one after another in this process.
    """

    def __init__(self, experiment: Experiment, folder: Path, pool: Pool | None = None) -> None:
        self._folder = folder / folder_of(experiment)
        self._pool = pool
        durable.make_folder(self._folder)

    def train(
        self, run: Callable[[Subset], np.ndarray], subsets: Sequence[Subset]
    ) -> Iterator[tuple[Subset, np.ndarray]]:
        """Yields every subset with its model; the subsets whose models are in files come first."""
        left = list[Subset]()
        for subset in subsets:
            model_D = self._read(subset)
            if model_D is None:
                left.append(subset)
            else:
                yield subset, model_D
        for subset, model_D in run_all(run, left, self._pool):
            durable.replace(self._file(subset), [save({MODEL: model_D})])
            yield subset, model_D

    def _read(self, subset: Subset) -> np.ndarray | None:
        """The model in a subset's file; None if the file is missing or damaged."""
        with suppress(FileNotFoundError, SafetensorError, KeyError):
            model_D: np.ndarray = load(self._file(subset).read_bytes())[MODEL]
            return model_D
        return None

    def _file(self, subset: Subset) -> Path:
        names = hashlib.sha256(json.dumps(subset).encode()).hexdigest()
        return self._folder / f"{names[:32]}.safetensors"
