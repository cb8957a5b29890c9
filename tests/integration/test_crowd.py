"""A crowd: real processes refuse none of hundreds of clients that follow the protocol."""

from pathlib import Path

import pytest

from benchmarks import crowd

pytestmark = pytest.mark.processes


def test_no_client_that_follows_the_protocol_is_told_to_come_back(tmp_path: Path) -> None:
    found = crowd.measure(300, 1.0, 1, tmp_path, events=False)
    assert found["drawn"] == 300
    assert found["refused_429"] == found["unavailable_503"] == 0
