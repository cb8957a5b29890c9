"""Families of named members: a family is a package in which every module adds one member.

The package's `__init__` makes one `Registry`, and each module registers its class with
`@registry.register("name")`. There is no list of the members: the first look-up imports all modules
of the package. Other installed packages add members by entry points (see `plugins`). A member's
parameters are pydantic fields. The registry refuses to build a member if a parameter is misspelt,
missing, of a wrong type or out of range; the message lists the known parameters.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import get_close_matches
from importlib.metadata import EntryPoint
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from rampart_fl.shared.errors import ConfigurationError, RampartError, UnknownMember
from rampart_fl.shared.families import plugins
from rampart_fl.shared.families.numbers import refuse_booleans

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

RAISED_BY = "raised by "
NO_NOTE = nullcontext()


class FamilyMember(BaseModel):
    """One member of a family: a frozen, typed set of parameters with pure methods."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        populate_by_name=True,
        arbitrary_types_allowed=True,
    )
    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    """Source of the algorithm, as the catalogue shows it: authors or short title, year,
    equation."""
    package: ClassVar[str] = ""
    """The package and version from which the member comes, such as "my-rules==1.2"; "" for
    Rampart's own members."""

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        refuse_booleans(value, cls.model_fields[str(info.field_name)].annotation)
        return value

    @property
    def origin(self) -> str:
        """The member's name and package, for error messages; its class if it has no name."""
        name = repr(self.name or type(self).__name__)
        return f"{name} of {self.package}" if self.package else name

    def own_errors(self) -> AbstractContextManager[None]:
        """Adds a note with the member's name to errors of the member's own code.

        The error keeps its type, because callers, and the processes (ranks) that share a stage's
        work, distinguish types of errors. A member may call a second member. If the second member's
        code raises the error, the note names only the second member.
        """
        # Each training step calls this method, so it must be fast for Rampart's own members.
        return _noted(f"{RAISED_BY}{self.origin}") if self.package else NO_NOTE


@contextmanager
def _noted(note: str) -> Iterator[None]:
    """Adds the note to an error, unless it is a `RampartError` or already names a member."""
    try:
        yield
    except RampartError:
        raise
    except Exception as error:
        if not any(known.startswith(RAISED_BY) for known in getattr(error, "__notes__", ())):
            error.add_note(note)
        raise


M = TypeVar("M", bound=FamilyMember)
_DISCOVERING = RLock()
"""Lock for the import of a family's modules; other threads wait until all modules are imported. All
families share this lock. If each family had its own lock, two threads could deadlock, because
modules of different families may import each other."""


class Registry(Generic[M]):
    """The members of one family, keyed by name.

    Args:
        kind: the class that every member derives from.
        family: the word that messages use for a member of the family, such as "rule".
        package: the package whose modules register members.
        group: the group of entry points by which other packages add members.
    """

    def __init__(self, kind: type[FamilyMember], family: str, *, package: str, group: str) -> None:
        self.kind = kind
        self.family = family
        self.group = group
        self._package = package
        self._members: dict[str, type[M]] = {}
        self._begun = False
        self._discovered = False

    def register(self, name: str) -> Callable[[type[M]], type[M]]:
        """A class decorator that adds the class under `name`."""

        def add(member: type[M]) -> type[M]:
            known = self._members.get(name)
            assert known is None or known.__qualname__ == member.__qualname__, f"{name} twice"
            member.name = name
            self._members[name] = member
            return member

        return add

    def names(self) -> tuple[str, ...]:
        """The names of all members, sorted."""
        self._discover()
        return tuple(sorted({*self._members, *plugins.installed(self.group)}))

    def get(self, name: str) -> type[M]:
        """The class with this name; for an unknown name, the error lists the known names."""
        self._discover()
        entries = plugins.installed(self.group).get(name, ())
        if entries:
            self._add(name, entries)
        elif name not in self._members:
            raise UnknownMember(self.family, name, self.names())
        return self._members[name]

    def _add(self, name: str, entries: tuple[EntryPoint, ...]) -> None:
        """Adds a member from another package, unless the member has already been added."""
        member: type[M] = plugins.load(self.family, name, entries, self.kind)
        package = plugins.requirement(entries[0])
        if self._members.setdefault(name, member) is not member:
            raise ConfigurationError(
                f"{self.family} {name!r} of {package} has the same name as one of Rampart's own"
            )
        member.name, member.package = name, package
        plugins.note(name, package)

    def build(self, name: str, **parameters: Any) -> M:
        """Builds a member with these parameters.

        Raises:
            ConfigurationError: a parameter is wrong; the message says which one and why.
        """
        member = self.get(name)
        try:
            return member(**parameters)
        except ValidationError as error:
            raise ConfigurationError(
                f"{self.family} {name!r}: {explain(error, member)}; parameters: {signature(member)}"
            ) from None

    def parse(self, spec: "str | Mapping[str, Any] | FamilyMember", **defaults: Any) -> M:
        """Builds a member from `"name"` or from `{"name": ..., parameter: ...}`.

        If the spec is already a member, it is returned unchanged. `defaults` contains values for
        parameters that the spec leaves out. Keys of `defaults` that are not parameters of the
        member are ignored.
        """
        if isinstance(spec, FamilyMember):
            return spec  # type: ignore[return-value]  # a member of the caller's family
        if not isinstance(spec, str | Mapping):
            raise ConfigurationError(f"a {self.family} must be a name or a table, not {spec!r}")
        parameters = {"name": spec} if isinstance(spec, str) else dict(spec)
        name = parameters.pop("name", None)
        if not isinstance(name, str):
            raise ConfigurationError(
                f"a {self.family} needs a name; known: {', '.join(self.names())}"
            )
        fields = self.get(name).model_fields
        fill = {key: value for key, value in defaults.items() if key in fields}
        return self.build(name, **{**fill, **parameters})

    def _discover(self) -> None:
        if self._discovered:
            return
        with _DISCOVERING:
            # Return if another thread has imported the modules in the meantime. Also return if this
            # thread is importing the modules now, and one of these modules looks up a member.
            if self._begun:
                return
            self._begun = True
            try:
                package = importlib.import_module(self._package)
                for module in pkgutil.iter_modules(package.__path__):
                    importlib.import_module(f"{self._package}.{module.name}")
                self._discovered = True
            finally:
                self._begun = self._discovered


def explain(error: ValidationError, table: type[BaseModel] | None = None) -> str:
    """Formats a pydantic error as one line that says where the error is and what is wrong.

    Args:
        error: the error that pydantic raised.
        table: the class that was validated. If a key is unknown, the formatted error suggests
            a similar key of this class.
    """
    return "; ".join(_explained(issue, table) for issue in error.errors())


def _explained(issue: "ErrorDetails", table: type[BaseModel] | None) -> str:
    where, message = ".".join(map(str, issue["loc"])), issue["msg"]
    if issue["type"] == "extra_forbidden":
        known = [] if table is None else _keys(table, issue["loc"][:-1])
        close = get_close_matches(str(issue["loc"][-1]), known, n=1)
        message = "no such key" + (f" (did you mean {close[0]!r}?)" if close else "")
    elif issue["type"] == "value_error":
        message = str(issue["ctx"]["error"])
    return f"{where}: {message}" if where else message


def _keys(table: type[BaseModel], way: Sequence[int | str]) -> list[str]:
    """The keys of the table at the path `way`, a sequence of field names and list indices."""
    for part in way:
        tables = [
            inner
            for key, field in table.model_fields.items()
            if part in (key, field.alias)
            for inner in _tables(field.annotation)
        ]
        table = tables[0] if tables else table
    return [field.alias or key for key, field in table.model_fields.items()]


def _tables(annotation: Any) -> list[type[BaseModel]]:
    """The table classes that occur in a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for part in get_args(annotation) for table in _tables(part)]


def signature(member: type[FamilyMember]) -> str:
    """A member's parameters with their defaults, as one line."""
    parts = []
    for key, field in member.model_fields.items():
        shown = field.alias or key
        parts.append(shown if field.is_required() else f"{shown}={field.get_default()!r}")
    return ", ".join(parts) or "none"
