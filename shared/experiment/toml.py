"""Writes the tables of an experiment as TOML; `Experiment.parse` reads them."""

from typing import Any

import tomli_w


def to_toml(tables: dict[str, Any]) -> str:
    """Formats nested dictionaries as TOML, without the keys whose value is None.

    >>> print(to_toml({"name": "x", "data": {"clients": 2, "groups": None}}), end="")
    name = "x"
    <BLANKLINE>
    [data]
    clients = 2
    """
    return tomli_w.dumps(_without_none(tables))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value
