"""Fixtures: a federation to which the console can connect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.in_process_federation import Hosted, experiment, host


@pytest.fixture
def hosted(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosted]:
    """A federation that waits for its clients; the console has the owner's token."""
    with host(experiment(3), tmp_path, redis_url) as hosted:
        monkeypatch.setenv("RAMPART_AGGREGATOR", hosted.url)
        token = hosted.settings.operator_token.get_secret_value()
        monkeypatch.setenv("RAMPART_OPERATOR_TOKEN", token)
        yield hosted


def good(said: Any) -> str:
    """The output of a command, which must have succeeded."""
    assert said.code == 0, said.err
    return str(said.out)
