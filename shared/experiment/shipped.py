"""Finds shipped experiments, which come with Rampart, by name."""

from pathlib import Path

from rampart_fl.shared.errors import UnknownMember

SHIPPED = Path(__file__).parents[1] / "experiments"
"""The folder of the shipped experiments."""


def shipped() -> tuple[str, ...]:
    """Names of the shipped experiments."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find(source: str | Path) -> Path:
    """The file at the path `source`, or the file of the shipped experiment named `source`.

    Raises:
        UnknownMember: there is neither a file nor a shipped experiment with this name.

    >>> find("digits-benign").name
    'digits-benign.toml'
    """
    for path in (Path(source), SHIPPED / f"{source}.toml"):
        if path.is_file():
            return path
    raise UnknownMember("experiment", str(source), shipped())
