"""Every pass is tested with torch, and with the compiled kernels if they are available."""

from collections.abc import Iterator

import pytest

from rampart_fl.shared.robust.linalg import native


@pytest.fixture(params=["auto", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kernels with which the test runs."""
    monkeypatch.setenv("RAMPART_KERNELS", request.param)
    if request.param == "auto" and native.backend() != "native":
        pytest.skip(native.backend())
    yield request.param
