"""The hierarchy of errors; each class states the HTTP status and problem type of the response.

RampartError
├── ConfigurationError        an experiment, a setting or a parameter is wrong
│   └── UnknownMember         a rule, attack, data set, ... is unknown; the message lists known ones
├── PreconditionError         a rule has no result for the rows, for example if there are too few
│   ├── TooFewRows            too few rows for a stage that has to tolerate f hostile rows
│   └── MissingRow            a rule needs the row of one particular client, but it is missing
├── Refusal                   a request breaks the protocol (see shared/protocol/refusals.py)
└── Unavailable               a dependency cannot be reached; the request may succeed later
"""

from collections.abc import Callable
from typing import Any, ClassVar


class RampartError(Exception):
    """The base class of all errors that Rampart raises deliberately.

    `slug` is the last part of the RFC 9457 problem type, `urn:rampart:<slug>`; a slug never
    changes.
    """

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"

    @property
    def detail(self) -> str:
        """What went wrong, in one sentence for the person who has to fix it."""
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling calls the constructor with only the message. This call fails if the
        # constructor takes other arguments. An error that cannot be unpickled breaks the pool of
        # worker processes.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[RampartError], args: tuple[Any, ...], fields: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ConfigurationError(RampartError, ValueError):
    """An experiment file, a setting or a parameter is wrong."""

    status = 422
    slug = "configuration-error"
    title = "Configuration error"


class UnknownMember(ConfigurationError):
    """A family has no member with this name.

    Args:
        family: what the message calls a member of the family, such as "rule".
        name: the unknown name.
        known: the names of the family's members.
        package: the package and version from which the experiment takes the member.
        most: the largest number of known names in the message. If there are more names, the message
            lists the names that are most similar to the unknown name, sorted. By default, the
            message lists all names in the given order.

    >>> str(UnknownMember("rule", "krun", ("krum", "median")))
    "unknown rule 'krun' (did you mean 'krum'?); known: krum, median"
    >>> str(UnknownMember("rule", "mine", ("krum", "median"), "my-rules==1.2"))
    "rule 'mine' comes from my-rules==1.2, which is not installed here"
    >>> str(UnknownMember("rule", "krun", ("fltrust", "krum", "median"), most=1))
    "unknown rule 'krun' (did you mean 'krum'?); known: krum and 2 more"
    """

    slug = "unknown-member"
    title = "Unknown member"

    def __init__(
        self,
        family: str,
        name: str,
        known: tuple[str, ...],
        package: str | None = None,
        most: int | None = None,
    ) -> None:
        from difflib import get_close_matches

        self.family, self.name, self.known = family, name, known
        if package is not None:
            super().__init__(f"{family} {name!r} comes from {package}, which is not installed here")
            return
        close = get_close_matches(name, known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        listed = list(known)
        if most is not None and most < len(known):
            listed = sorted(get_close_matches(name, known, n=most, cutoff=0))
        more = f" and {len(known) - len(listed)} more" if len(listed) < len(known) else ""
        super().__init__(f"unknown {family} {name!r}{hint}; known: {', '.join(listed)}{more}")


class PreconditionError(RampartError, ValueError):
    """A rule cannot compute a result from the rows, for example because f is too large.

    The message names the cause. If this error occurs, the round fails and leaves the models
    unchanged. The next round may succeed.
    """

    status = 422
    slug = "precondition-failed"
    title = "No result from these rows"


class TooFewRows(PreconditionError):
    """There are too few rows for a stage that has to tolerate f hostile rows."""

    slug = "too-few-rows"
    title = "Too few rows for the bound f"


class MissingRow(PreconditionError):
    """A rule needs the row of a particular client, but this client sent no row in the round."""

    slug = "row-missing"
    title = "A row is missing"


class Unavailable(RampartError):
    """A dependency (Redis, blobs, the worker) is unreachable; the request may succeed later."""

    status = 503
    slug = "unavailable"
    title = "Unavailable"


def refusal(check: Callable[..., object], *args: Any) -> list[str]:
    """Calls `check`; returns a list with its error message, or an empty list without an error.

    If `explained` returns None for an error, the error is raised again.
    """
    try:
        check(*args)
    except Exception as error:
        message = explained(error)
        if message is None:
            raise
        return [message]
    return []


def explained(error: Exception) -> str | None:
    """The message of an error in the user's settings or code; None for any other error.

    Every `ConfigurationError` counts as an error in the user's settings or code. An error of
    another class counts only if it has a note; the note says whose code raised it.
    """
    if isinstance(error, ConfigurationError):
        return str(error)
    return with_notes(error) if getattr(error, "__notes__", ()) else None


def with_notes(error: Exception) -> str:
    """The type and message of an error, followed by its notes in parentheses.

    >>> error = KeyError("a")
    >>> error.add_note("raised by 'mine' of my-rules==1.2")
    >>> with_notes(error)
    "KeyError: 'a' (raised by 'mine' of my-rules==1.2)"
    """
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}" + (f" ({notes})" if notes else "")
