"""The event log, in a real Redis, and the types of all events."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from rampart_fl.services.aggregator import state
from rampart_fl.services.aggregator.state.redis_records import EventType
from rampart_fl.services.aggregator.state.run_store import STEERS
from rampart_fl.services.aggregator.worker.phases import round_events
from rampart_fl.shared.protocol.messages import Receipt, RoundFacts

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64


def written_types() -> set[str]:
    """The event types in the stores' source: strings, and the results of `and` and `or` in Lua."""
    source = "\n".join(path.read_text() for path in Path(*state.__path__).glob("*.py"))
    given = re.findall(r"(?:'type', |local event = )([^,\n]+)", source)
    in_lua = {name for text in given for name in re.findall(r"(?:^|and |or )'(\w+)'", text)}
    return in_lua | set(re.findall(r'"type": "(\w+)"', source))


def test_event_types_are_those_that_the_stores_write() -> None:
    passed = {*STEERS}
    for message, field in ((Receipt, "kind"), (RoundFacts, "status")):
        passed |= set(get_args(message.model_fields[field].annotation))
    assert written_types() | passed == set(get_args(EventType))


def test_open_round_handles_only_existing_types_of_events() -> None:
    handled = re.findall(r'case (("\w+"( \| )?)+)', Path(round_events.__file__).read_text())
    names = {name for cases, *_ in handled for name in re.findall(r"\w+", cases)}
    assert "pull" in names and names <= set(get_args(EventType))


async def test_trim_drops_all_but_the_newest_events(live_run: Any) -> None:
    for _ in range(30):
        await live_run.run.customizations.request("r", "a", DIGEST)
    await live_run.run.events.trim(10)
    assert len(await live_run.run.events.read("0-0", 0.001)) == 32, "whole nodes of the stream go"
    for _ in range(500):
        await live_run.run.customizations.request("r", "a", DIGEST)
    await live_run.run.events.trim(10)
    assert 10 <= len(await live_run.run.events.read("0-0", 0.001)) <= 130
