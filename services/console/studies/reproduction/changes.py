"""Changes that a choice or a setting makes to the TOML tables of an experiment."""

from collections.abc import Mapping
from typing import Any

from rampart_fl.shared.errors import ConfigurationError


def merged(tables: Any, change: Any) -> Any:
    """Applies a change to TOML tables: merges inner tables, and replaces everything else.

    A change with the key `name` replaces the entire old table. For example, a change to another
    rule also removes the parameters of the old rule. To change entries of a list, a change has
    their positions as keys, such as "0" for the first entry.

    >>> merged({"server": {"f": 1, "rule": "krum"}}, {"server": {"rule": {"m": 3}}})
    {'server': {'f': 1, 'rule': {'name': 'krum', 'm': 3}}}
    >>> merged({"attackers": [{"count": 6}]}, {"attackers": {"0": {"attack": "lie"}}})
    {'attackers': [{'count': 6, 'attack': 'lie'}]}
    """
    if not isinstance(change, Mapping) or "name" in change or tables is None:
        return change
    if isinstance(tables, str):
        tables = {"name": tables}
    if isinstance(tables, list):
        if wrong := change.keys() - {str(place) for place in range(len(tables))}:
            raise ConfigurationError(f"a list of {len(tables)} has no entry {min(wrong)}")
        return [merged(old, change.get(str(place), {})) for place, old in enumerate(tables)]
    if not isinstance(tables, Mapping):
        return change
    return {**tables, **{key: merged(tables.get(key), new) for key, new in change.items()}}
