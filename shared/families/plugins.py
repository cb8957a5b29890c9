"""Members that other installed packages add to families, by entry points.

Each family has a group, such as `rampart_fl.rules`. A package's pyproject.toml declares in it what
it adds: the entry point's name is the member's, its value the class. Only metadata is read before
a member is looked up.
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
    """The entry points of a group by name; several packages may use one name."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=group):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def requirement(entry: EntryPoint) -> str:
    """The package that declares an entry point, with its version: `my-rules==1.2`."""
    return f"{entry.dist.name}=={entry.dist.version}" if entry.dist else entry.value


def load(family: str, name: str, entries: tuple[EntryPoint, ...], kind: type[Any]) -> type[Any]:
    """The class behind an entry point.

    Args:
        family: what a member is called in messages.
        name: of the member.
        entries: those of this name; more than one are refused.
        kind: what the class must derive from.
    Raises:
        ConfigurationError: several packages use the name, or it does not lead to such a class.
    """
    packages = " and ".join(sorted(map(requirement, entries)))
    if len(entries) > 1:
        raise ConfigurationError(f"{family} {name!r} comes from {packages}: uninstall all but one")
    (entry,) = entries
    try:
        found = entry.load()
    except Exception as error:  # Whatever the package's code does when it is imported.
        raise ConfigurationError(
            f"{family} {name!r} of {packages} cannot be imported from {entry.value}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise ConfigurationError(
            f"{family} {name!r} of {packages}: {entry.value} is not a subclass of {kind.__name__}"
        )
    return found


@contextmanager
def known(packages: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Within it an experiment's members are looked up; gives the packages that they come from.

    Args:
        packages: where the experiment takes members from, by their names.
    Returns:
        The same of all members that were looked up; Rampart's own are left out.
    Raises:
        UnknownMember: a member is unknown here; says which package is missing.
        ConfigurationError: another package has a member of the same name.
    """
    outer = _looked_up.get()
    found: dict[str, str] = {} if outer is None else outer
    token = _looked_up.set(found)
    try:
        yield found
    except UnknownMember as error:
        package = packages.get(error.name)
        raise UnknownMember(error.family, error.name, error.known, package) from None
    finally:
        _looked_up.reset(token)
    for name in sorted(found.keys() & packages.keys()):
        here, there = found[name], packages[name]
        if here.partition("==")[0] != there.partition("==")[0]:
            raise ConfigurationError(
                f"{name!r} comes from {there}, but from {here} on this machine: uninstall that"
            )


def note(name: str, package: str) -> None:
    """Tells `known` that a member of another package was looked up."""
    found = _looked_up.get()
    if found is not None:
        found[name] = package
