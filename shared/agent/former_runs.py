"""Tidies the folders of a client's former runs, and keeps the personal models."""

import logging
import re
from pathlib import Path

from safetensors import SafetensorError

from rampart_fl.shared.agent.learning_client import PERSONAL, RunFiles
from rampart_fl.shared.experiment.start import RUN_ID

log = logging.getLogger(__name__)


def tidy_former_runs(runs: Path, current: str, models_kept: int | None = None) -> None:
    """Deletes those files of former runs that the client no longer needs.

    A run can end while the client is offline or evicted. The run's folder then still holds the
    client's last uploads, which are as large as the model. A federation executes one run at a time.
    When a client takes part in a run, all its other runs have therefore ended.

    The function keeps personal models, because they belong to the client's owner. It also keeps
    files that the agent did not write.

    Args:
        runs: the folder that has one subfolder for each run of the client.
        current: id of the run in which the client takes part.
        models_kept: maximum number of personal models that are kept, from the newest former runs;
            None keeps all.
    """
    former = [path for path in runs.glob("*-*") if path.is_dir() and path.name != current]
    former = [path for path in former if re.fullmatch(RUN_ID, path.name)]
    former.sort(key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    models = 0
    for folder in former:
        try:
            RunFiles(folder).finish()
        except (ValueError, KeyError, SafetensorError) as error:
            # Someone has changed a file. Keep all files of this run, because the owner may still
            # want to recover the personal state.
            log.warning("the files of a former run cannot be read: %s", error, extra=_of(folder))
            continue
        model = folder / PERSONAL
        if model.exists():
            models += 1
            if models_kept is not None and models > models_kept:
                model.unlink()
                log.info("the personal model of a former run was deleted", extra=_of(folder))
        if not any(folder.iterdir()):
            folder.rmdir()


def _of(folder: Path) -> dict[str, str]:
    """The fields of a log line about a run's folder."""
    return {"run": folder.name}
