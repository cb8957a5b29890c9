"""Every pass is tested with the compiled kernels, where a compiler is there, and with torch."""

from collections.abc import Iterator

import pytest

from rampart_fl.shared.robust.linalg import native


@pytest.fixture(params=["auto", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Which kernels the test runs with."""
    monkeypatch.setenv("RAMPART_KERNELS", request.param)
    if request.param == "auto" and native.backend() != "native":
        pytest.skip(native.backend())
    yield request.param
