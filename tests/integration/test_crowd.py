"""A crowd: real processes refuse none of hundreds of clients that follow the protocol."""

from pathlib import Path

import pytest

from benchmarks import crowd

pytestmark = pytest.mark.processes


def test_no_request_of_300_compliant_clients_is_refused(tmp_path: Path) -> None:
    result = crowd.measure(300, 1.0, 1, tmp_path, events=False)
    assert result["drawn"] == 300
    assert result["refused_429"] == result["unavailable_503"] == 0
