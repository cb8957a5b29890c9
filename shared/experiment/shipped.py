"""Finds shipped experiments, which come with Rampart, by name."""

from pathlib import Path

from rampart_fl.shared.errors import ConfigurationError, UnknownMember

SHIPPED = Path(__file__).parents[1] / "experiments"
"""The folder of the shipped experiments."""
SUGGESTED = 8
"""How many shipped experiments an error message names."""


def shipped() -> tuple[str, ...]:
    """Names of the shipped experiments."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def text_of(path: Path) -> str:
    """Reads the text of an experiment's file as UTF-8, whatever the locale says.

    Raises:
        ConfigurationError: the file is not in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"not a TOML file: {error}") from None


def find(source: str | Path) -> Path:
    """The file at the path `source`, or the file of the shipped experiment named `source`.

    Raises:
        UnknownMember: `source` is a name, and no shipped experiment has this name.
        ConfigurationError: `source` is a path, and there is no file at this path.

    >>> find("digits-benign").name
    'digits-benign.toml'
    """
    given = Path(source)
    for path in (given, SHIPPED / f"{source}.toml"):
        if path.is_file():
            return path
    if given.exists():
        raise ConfigurationError(f"{given} is {'a folder' if given.is_dir() else 'not a file'}")
    name = str(source)
    if "/" in name or name.endswith(".toml"):
        raise ConfigurationError(f"no file {name}")
    raise UnknownMember("experiment", name, shipped(), most=SUGGESTED)
