"""The digest of the model file in `model.start`, which the experiment's digest does not cover."""

import hashlib
from pathlib import Path

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment

START = "start_sha256"
"""Files with results store the SHA-256 of the run's model file under this key."""


def start_digest(experiment: Experiment) -> str | None:
    """SHA-256 of the model file from which an experiment starts; None if there is no such file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    if experiment.start is None or experiment.start.file is None:
        return None
    path = Path(experiment.start.file)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(f"model.start: cannot read {path}: {error.strerror}") from None


def folder_of(experiment: Experiment) -> str:
    """The folder name of an unfinished run, made from the digests of experiment and model file."""
    start = start_digest(experiment)
    return experiment.digest() if start is None else f"{experiment.digest()}-{start[:16]}"
