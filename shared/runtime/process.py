"""How every service starts and exits: settings from flags or variables, logs, and exit codes."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

import uvloop
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.runtime import telemetry

log = logging.getLogger(__name__)

SECRETS = "RAMPART_SECRETS"
"""Environment variable that names a folder of secrets. Each file in the folder has the name of a
setting's variable, in lower case."""


def secrets_folder() -> Path | None:
    """The folder that RAMPART_SECRETS names, or None if the variable is not set."""
    folder = os.environ.get(SECRETS)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise ConfigurationError(f"{SECRETS} names {folder!r}, which is not a folder")
    return Path(folder)


def secret(variable: str) -> str | None:
    """The value of an environment variable, or the contents of its secret file."""
    value = os.environ.get(variable)
    if value:
        return value
    folder = secrets_folder()
    path = None if folder is None else folder / variable.lower()
    return path.read_text(encoding="utf-8").strip() if path is not None and path.exists() else None


class ServiceSettings(BaseSettings):
    """Settings of a process: RAMPART_<FIELD> sets a field; docstrings of fields are help texts."""

    model_config = SettingsConfigDict(
        env_prefix="RAMPART_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe level that is logged."""


S = TypeVar("S", bound=ServiceSettings)


def read_settings(service: str, settings: type[S]) -> S:
    """Reads settings. Flags override RAMPART_ variables, which override the folder of secrets."""

    class Flags(settings):  # type: ignore[valid-type, misc]  # a class at run time
        model_config = SettingsConfigDict(
            cli_parse_args=True,
            cli_prog_name=f"python -m rampart_fl.services.{service.replace('-', '_')}",
            cli_kebab_case=True,
            secrets_dir=secrets_folder(),
        )

    Flags.__doc__ = settings.__doc__
    make: Any = Flags
    values: S = make()
    return values


def explain_settings(error: ValidationError, prefix: str) -> str:
    """Describes wrong settings in one line: the variable of each setting, and what is wrong.

    Args:
        error: the validation error.
        prefix: prefix of the variables' names.
    """
    problems = []
    for issue in error.errors():
        name, *rest = map(str, issue["loc"] or ("",))
        where = ".".join([f"{prefix}{name}".upper(), *rest])
        message = issue["msg"].removeprefix("Value error, ")
        problems.append(f"{where}: {message}" if name else message)
    return "; ".join(problems)


def run_service(
    service: str,
    settings: type[S],
    work: Callable[[S], Coroutine[Any, Any, None]],
    own_signals: bool = False,
) -> int:
    """Runs a service until it exits.

    Args:
        service: the service's name in logs and help.
        settings: class of the service's settings.
        work: the service's coroutine function.
        own_signals: whether `work` itself handles SIGTERM and SIGINT. If not, these signals cancel
            `work`.
    Returns:
        The exit code: 0 after a normal exit, 2 for a wrong setting, 1 for any other failure. The
        cause is written to standard error.
    """
    try:
        values = read_settings(service, settings)
    except ValidationError as error:
        prefix = str(settings.model_config["env_prefix"])
        sys.stderr.write(f"error: {explain_settings(error, prefix)}\n")
        return 2
    except ConfigurationError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    telemetry.configure(service, values.log_level)
    # A service has few reference cycles but many live objects.
    # Less frequent garbage collection saves a tenth of the service's time.
    gc.set_threshold(20_000, 25, 25)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(values) if own_signals else _until_signal(work(values)))
    except BaseExceptionGroup as group:
        for cause in group.exceptions:
            _tell(cause)
        return 1
    except Exception as error:  # Any error that stops a service is logged, and the exit code is 1.
        _tell(error)
        return 1
    finally:
        gc.freeze()  # Without `freeze`, Python would traverse torch's objects again at exit.
    return 0


def _tell(error: BaseException) -> None:
    expected = isinstance(error, RampartError | ValueError | OSError)
    log.error("%s: %s", type(error).__name__, error, exc_info=None if expected else error)


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
