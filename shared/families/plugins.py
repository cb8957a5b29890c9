"""Members that other installed packages add to families through entry points.

Each family has a group of entry points, such as `rampart_fl.rules`. To add a member, a package
declares an entry point of the group in its pyproject.toml. The name of the entry point is the
member's name, and the value is the member's class. At first, Rampart reads only the package's
metadata. Rampart imports the package's code only when one of the package's members is looked up.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rampart_fl.shared.errors import ConfigurationError, UnknownMember

_looked_up: ContextVar[dict[str, str] | None] = ContextVar("looked_up", default=None)


@cache
def installed(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of a group, keyed by name; several packages may use the same name."""
    entries: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=group):
        entries[entry.name] = (*entries.get(entry.name, ()), entry)
    return entries


def requirement(entry: EntryPoint) -> str:
    """The package that declares an entry point, with its version: `my-rules==1.2`."""
    return f"{entry.dist.name}=={entry.dist.version}" if entry.dist else entry.value


def load(family: str, name: str, entries: tuple[EntryPoint, ...], kind: type[Any]) -> type[Any]:
    """The class that an entry point refers to.

    Args:
        family: the word that error messages use for a member of the family, such as "rule".
        name: the name of the member.
        entries: the entry points with this name; more than one entry point is refused.
        kind: the class that the member must derive from.
    Raises:
        ConfigurationError: several packages use the name, or the entry point does not refer to a
            subclass of `kind`.
    """
    packages = " and ".join(sorted(map(requirement, entries)))
    if len(entries) > 1:
        raise ConfigurationError(
            f"several packages have the {family} {name!r}: {packages}; keep only one"
        )
    (entry,) = entries
    try:
        member = entry.load()
    except Exception as error:  # The package's code may raise anything when it is imported.
        raise ConfigurationError(
            f"{family} {name!r} of {packages} cannot be imported from {entry.value}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not (isinstance(member, type) and issubclass(member, kind)):
        raise ConfigurationError(
            f"{family} {name!r} of {packages}: {entry.value} is not a subclass of {kind.__name__}"
        )
    missing = sorted(getattr(member, "__abstractmethods__", ()))
    if missing:
        raise ConfigurationError(
            f"{family} {name!r} of {packages}: {entry.value} lacks {', '.join(missing)}"
        )
    return member


@contextmanager
def record_lookups(packages: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Context manager that records the packages from which an experiment's members come.

    Args:
        packages: the packages from which the experiment takes members, keyed by member name.
    Returns:
        The packages of all members looked up in the context, keyed by member name. Rampart's own
        members are left out.
    Raises:
        UnknownMember: a member is unknown on this machine. If `packages` contains the member, the
            message names the missing package.
        ConfigurationError: two packages provide members with the same name; or `packages` names one
            package for a member, but this machine takes the member from another package.
    """
    outer = _looked_up.get()
    lookups: dict[str, str] = {} if outer is None else outer
    token = _looked_up.set(lookups)
    try:
        yield lookups
    except UnknownMember as error:
        package = packages.get(error.name)
        raise UnknownMember(error.family, error.name, error.known, package) from None
    finally:
        _looked_up.reset(token)
    for name in sorted(lookups.keys() & packages.keys()):
        here, there = lookups[name], packages[name]
        if here.partition("==")[0] != there.partition("==")[0]:
            raise ConfigurationError(
                f"the experiment takes {name!r} from {there}, but on this machine {here} "
                f"provides it: uninstall {here}"
            )


def note(name: str, package: str) -> None:
    """Tells the enclosing `record_lookups` that a member from another package was looked up.

    Raises:
        ConfigurationError: the experiment already uses a member with the same name, from another
            family and from a different package. The second member is refused, because an
            experiment's table `packages` has only one entry per name.
    """
    lookups = _looked_up.get()
    if lookups is not None and lookups.setdefault(name, package) != package:
        raise ConfigurationError(
            f"the experiment uses members named {name!r} from two packages, {lookups[name]} and "
            f"{package}: members of different packages need different names"
        )
