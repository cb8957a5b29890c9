"""Changes to the tables of an experiment."""

import pytest

from rampart_fl.services.console.studies.reproduction.changes import merged
from rampart_fl.shared.errors import ConfigurationError


def test_named_change_replaces_a_member_and_unnamed_change_updates_it() -> None:
    tables = {"rule": {"name": "krum", "m": 3}, "f": 1}
    assert merged(tables, {"rule": {"name": "median"}}) == {"rule": {"name": "median"}, "f": 1}
    assert merged(tables, {"rule": {"m": 4}})["rule"] == {"name": "krum", "m": 4}
    assert tables == {"rule": {"name": "krum", "m": 3}, "f": 1}, "the tables were written to"


def test_list_entry_is_changed_by_index_and_missing_index_is_refused() -> None:
    assert merged([{"count": 1}, {"count": 2}], {"1": {"attack": "lie"}}) == [
        {"count": 1},
        {"count": 2, "attack": "lie"},
    ]
    with pytest.raises(ConfigurationError, match="a list of 1 has no entry 3"):
        merged([{"count": 1}], {"3": {"count": 2}})
