"""Lets pytest load each module only under its import path, such as `rampart_fl.shared.errors`."""

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Rejects `pytest shared/...`, which would import modules a second time, as `shared...`."""
    here = config.invocation_params.dir
    for argument in config.args:
        path = (here / argument.partition("::")[0]).absolute()
        if path.is_relative_to(config.rootpath):
            inside = path.relative_to(config.rootpath)
            if inside.parts[:1] in (("shared",), ("services",)):
                raise pytest.UsageError(f"{argument}: test it as {Path('src/rampart_fl') / inside}")
