"""The versions of the software that can change the last bits of a result."""

import platform
from importlib.metadata import version


def versions() -> dict[str, str]:
    """The versions of Python and torch, keyed by name."""
    return {"python": platform.python_version(), "torch": version("torch")}
