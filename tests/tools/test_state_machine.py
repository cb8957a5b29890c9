"""The diagrams and tables on the state machine's page match the code."""

import re

import pytest

from rampart_fl.services.aggregator.worker.phases.arrows import ARROWS, QUESTIONS, TRANSITIONS
from tools.state_machine import PATH, arrows, commands, diagram, render

PAGE = PATH.read_text(encoding="utf-8")


def test_the_committed_page_is_up_to_date() -> None:
    assert render(PAGE) == PAGE, f"run `python -m tools.state_machine` and commit {PATH.name}"


def test_a_page_without_a_marker_is_refused() -> None:
    with pytest.raises(AssertionError, match="lacks the markers of questions"):
        render(PAGE.replace("<!-- state machine, questions: end -->", ""))


def test_the_diagram_shows_every_change_of_phase_once() -> None:
    shown = re.findall(r"^  (\w+) --> (\w+): \S", diagram(), re.MULTILINE)
    assert len(shown) == len(set(shown))
    assert set(shown) == {(source, to) for source, _, to in TRANSITIONS if source != to}


def test_labels_contain_no_characters_that_break_the_diagram() -> None:
    assert not [arrow for arrow in ARROWS if re.search(r"[;:\n|#]", arrow.when)]


def test_the_table_shows_every_arrow() -> None:
    rows = re.findall(r"^\| (\w+) \| `(\w+)` \| .+ \| (\w+) \|", arrows(), re.MULTILINE)
    assert rows == [(arrow.source, arrow.event.__name__, arrow.target) for arrow in ARROWS]


def test_every_command_has_a_meaning() -> None:
    rows = re.findall(r"^\| `\w+` \| (.*) \|$", commands(), re.MULTILINE)
    asked = {question for questions in QUESTIONS.values() for question in questions}
    given = {kind for arrow in ARROWS for kind in arrow.commands}
    assert len(rows) == len(given) + len(asked)
    assert all(re.search(r"[\w`][.?]( |$)", meaning) for meaning in rows)
