"""The page on reproduced papers matches their definitions and the kept runs."""

import re

import pytest

from rampart_fl.services.console.studies.reproduction.files import names
from tools.reproduced import KEPT, PATH, page, run_files

PAGE = PATH.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_committed_page_is_up_to_date() -> None:
    assert page() == PAGE, f"run `python -m tools.reproduced` and commit {PATH.name}"


def test_every_unfinished_table_has_a_command_and_remaining_hours() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+) \| (\d+) \| .* \| ([\d.]+) \| (.*)\|$", PAGE, re.M)
    assert {row[0] for row in rows} == set(names())
    for name, cells, finished, left, command in rows:
        assert (cells == finished) == (float(left) == 0) == (not command)
        assert not command or f"rampart reproduce {name} " in command


@pytest.mark.slow
def test_every_kept_run_belongs_to_a_table() -> None:
    """No run is kept if its experiment is no longer in any table."""
    planned = {file for name in names() for files in run_files(name) for file in files}
    kept = {path.name for path in (KEPT / "cells").iterdir()}
    assert kept and kept <= planned
