"""The retry policy for HTTP requests: increasing, jittered delays up to a time limit (`patience`).

All requests between Rampart's processes use this policy. The exceptions are:

- Requests to Redis follow redis-py's own retry policy (see
  services/aggregator/state/redis_connection.py).
- Requests to an object store follow obstore's own retry policy (see
  services/aggregator/state/object_blobs.py).
- The job that makes join tokens repeats a change of a Kubernetes Secret that another job has
  changed in between. The job reads the Secret again before each attempt, so the conflict needs no
  delay (see `fill_secret` in services/console/join_tokens.py).
- A console that follows a run's events connects again after a lost connection. Each event restarts
  the time limit, so a stream may last as long as its run (see `follow_events` in
  services/console/connection/event_stream.py).
- Background loops, such as the event hub and the renewal of the worker's lease, repeat their work
  after a fixed pause. A client renews its token in such a loop, which goes on after any failure,
  even if the disk is full (see shared/agent/identity.py).
"""

import logging
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_before_delay,
    wait_exponential,
)

from rampart_fl.shared.errors import Unavailable

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRIED = {408, 425, 429, 500, 502, 503, 504}
"""HTTP statuses that report a temporary failure, so the request is retried."""
QUIET = 10.0
"""A warning is logged if a request is retried for more than this number of seconds."""
GROWING = wait_exponential(multiplier=0.1, max=2.0)
SECONDS = re.compile(r"[0-9]{1,6}")
"""The accepted form of a Retry-After header: whole seconds. Proxies may also send a date in this
header; a date is ignored."""


class TemporaryFailure(Exception):
    """An attempt failed, but another attempt may succeed.

    Args:
        reason: why the attempt failed.
        retry_after: the value of the response's Retry-After header; "" if there is no such header.
    """

    def __init__(self, reason: str, retry_after: str = "") -> None:
        super().__init__(reason)
        self.wait = float(retry_after) if SECONDS.fullmatch(retry_after) else 0.0

    @staticmethod
    def after(error: Exception, retry_after: str = "") -> "TemporaryFailure":
        """The failure of an attempt that ended with an error, such as a lost connection."""
        return TemporaryFailure(f"{type(error).__name__}: {error}", retry_after)


async def repeat(attempt: Callable[[], Awaitable[T]], where: str, patience: float) -> T:
    """Repeats `attempt` while it raises `TemporaryFailure`; returns the result of the last attempt.

    Args:
        attempt: callback that makes one attempt.
        where: the URL that is requested, for messages.
        patience: seconds after which no further attempt is made.
    Raises:
        Unavailable: no attempt succeeded within `patience` seconds.
    """
    return await AsyncRetrying(**_policy(where, patience))(attempt)


def repeat_blocking(attempt: Callable[[], T], where: str, patience: float) -> T:
    """The blocking version of `repeat`, for code that is not async."""
    return Retrying(**_policy(where, patience))(attempt)


def _policy(where: str, patience: float) -> dict[str, Any]:
    logged = False

    def tell(state: RetryCallState) -> None:
        nonlocal logged
        log.debug("retrying %s: %s", where, _failure(state))
        if not logged and (state.seconds_since_start or 0.0) > QUIET:
            logged = True
            log.warning("%s: %s; retrying for at most %.0f s", where, _failure(state), patience)

    def give_up(state: RetryCallState) -> NoReturn:
        raise Unavailable(f"{where} does not answer: {_failure(state)}") from None

    return {
        "retry": retry_if_exception_type(TemporaryFailure),
        "wait": _pause,
        "stop": stop_before_delay(patience),
        "before_sleep": tell,
        "retry_error_callback": give_up,
    }


def _pause(state: RetryCallState) -> float:
    return max(_failure(state).wait, GROWING(state)) * random.uniform(0.5, 1.0)


def _failure(state: RetryCallState) -> TemporaryFailure:
    assert state.outcome is not None
    failure = state.outcome.exception()
    assert isinstance(failure, TemporaryFailure)
    return failure
