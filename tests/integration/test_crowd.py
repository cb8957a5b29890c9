"""A crowd: real processes refuse none of hundreds of clients that follow the protocol."""

from pathlib import Path

import pytest

from benchmarks import crowd

pytestmark = pytest.mark.processes


def test_no_client_that_follows_the_protocol_is_told_to_come_back(tmp_path: Path) -> None:
    result = crowd.measure(300, 1.0, 1, tmp_path, events=False)
    assert result["drawn"] == 300
    assert result["refused_429"] == result["unavailable_503"] == 0
