"""Sends doctests to the paths that imports have: elsewhere a module would exist under two names."""

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Refuses `pytest shared/...`, which would import modules under a second name."""
    here = config.invocation_params.dir
    for argument in config.args:
        path = (here / argument.partition("::")[0]).absolute()
        if path.is_relative_to(config.rootpath):
            inside = path.relative_to(config.rootpath)
            if inside.parts[:1] in (("shared",), ("services",)):
                raise pytest.UsageError(f"{argument}: test it as {Path('src/rampart_fl') / inside}")
