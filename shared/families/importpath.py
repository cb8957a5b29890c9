"""Loads a user's own objects by import path, such as `my_package.nets:Net`; needs no torch."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rampart_fl.shared.errors import ConfigurationError


def load_callable(path: str, what: str) -> Callable[..., Any]:
    """The function or class that `MODULE:NAME` refers to.

    Args:
        path: the module's dotted name, a colon, and a name in the module (with dots if nested).
        what: the object's description in error messages, such as "a model".
    Raises:
        ConfigurationError: the path does not have the form MODULE:NAME, there is no such module or
            name, or the object is not callable.

    >>> load_callable("collections:OrderedDict", "a model").__name__
    'OrderedDict'
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ConfigurationError(f"{what} must be named as MODULE:NAME, not {path!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # after all installed code
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{what} {path!r}: no module {error.name!r} in this folder or in PYTHONPATH"
        ) from None
    for part in name.split("."):
        if not hasattr(target, part):
            raise ConfigurationError(f"{what} {path!r}: {module} has no {name!r}")
        target = getattr(target, part)
    if not callable(target):
        raise ConfigurationError(f"{what} {path!r} is {type(target).__name__}, not callable")
    call: Callable[..., Any] = target
    return call
