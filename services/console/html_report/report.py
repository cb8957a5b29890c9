"""Detects whether a path is a run, a matrix or a sweep, and makes the report."""

import hashlib
import json
from pathlib import Path
from typing import Any

from rampart_fl.services.console.html_report.run import run_report
from rampart_fl.services.console.stored_run import is_run, read_run
from rampart_fl.shared.errors import ConfigurationError

MATRIX, SWEEP = "matrix.json", "sweep.json"


def report(source: Path) -> str:
    """The report of a run, a matrix or a sweep as an HTML file.

    Args:
        source: the output folder of `rampart up`, `rampart simulate`, `rampart matrix` or `rampart
            export`. For a matrix or a sweep, `source` can also be the file `matrix.json` or
            `sweep.json`.
    Raises:
        ConfigurationError: the path holds no run, matrix or sweep, or one of its files is damaged.
    """
    if source.is_dir() and is_run(source):
        return run_report(read_run(source))
    known = [source] if source.is_file() else [source / MATRIX, source / SWEEP]
    for path in known:
        if path.is_file():
            return _study(path)
    raise ConfigurationError(
        f"{source} holds no run, matrix or sweep: give a folder written by 'rampart up', "
        "'rampart simulate --out' or 'rampart matrix'"
    )


def _study(path: Path) -> str:
    # The next two modules import torch, through the package `studies`. The report of a run does not
    # need torch, so import these modules only in this function.
    from rampart_fl.services.console.html_report.matrix import matrix_report
    from rampart_fl.services.console.html_report.sweep import sweep_report

    content = path.read_bytes()
    digests = {path.name: hashlib.sha256(content).hexdigest()}
    try:
        table: Any = json.loads(content)
        if isinstance(table, dict) and "cells" in table:
            return matrix_report(table, digests)
        if isinstance(table, dict) and "sweep" in table:
            return sweep_report(table, digests)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    raise ConfigurationError(f"{path} holds neither a matrix nor a sweep")
