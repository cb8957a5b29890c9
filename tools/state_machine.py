"""Writes the phase machine as a diagram and tables: `python -m tools.state_machine`.

The generated parts of the page are between markers; a test fails if they are not up to date.
"""

import inspect
from pathlib import Path
from typing import get_args

from rampart_fl.services.aggregator.worker.phases.arrows import ARROWS, QUESTIONS
from rampart_fl.services.aggregator.worker.phases.commands import Command, Question

PATH = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"


def diagram() -> str:
    """A Mermaid state diagram with one arrow for each pair of consecutive phases."""
    pairs = dict[tuple[str, str], str]()
    for arrow in ARROWS:
        if arrow.source != arrow.target:
            pairs.setdefault((arrow.source, arrow.target), arrow.when)
    lines = [f"  {source} --> {target}: {when}" for (source, target), when in pairs.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", "  [*] --> joining", *lines, "```"])


def arrows() -> str:
    """Every transition with its possible commands, as a Markdown table."""
    rows = [
        f"| {arrow.source} | `{arrow.event.__name__}` | {arrow.when} | {arrow.target} "
        f"| {_names(arrow.commands)} |"
        for arrow in ARROWS
    ]
    return "\n".join(
        ["| phase | event | if | next phase | commands |", "|---|---|---|---|---|", *rows]
    )


def questions() -> str:
    """The questions that the machine asks in each phase, as a Markdown table."""
    rows = [f"| {phase} | {_names(kinds)} |" for phase, kinds in QUESTIONS.items()]
    return "\n".join(["| phase | questions |", "|---|---|", *rows])


def commands() -> str:
    """The meaning of each command and each question, as a Markdown table."""
    kinds = (*get_args(Command), *get_args(Question))
    rows = [f"| `{kind.__name__}` | {_summary(kind)} |" for kind in kinds]
    return "\n".join(["| command | meaning |", "|---|---|", *rows])


def _names(kinds: tuple[type, ...]) -> str:
    return ", ".join(f"`{kind.__name__}`" for kind in kinds)


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def render(page: str) -> str:
    """The page with its generated parts updated."""
    parts = {"diagram": diagram, "arrows": arrows, "questions": questions, "commands": commands}
    for name, part in parts.items():
        start, end = (
            f"<!-- state machine, {name}: start -->",
            f"<!-- state machine, {name}: end -->",
        )
        assert page.count(start) == page.count(end) == 1, f"{PATH.name} lacks the markers of {name}"
        before, rest = page.split(start)
        page = f"{before}{start}\n{part()}\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    PATH.write_text(render(PATH.read_text(encoding="utf-8")), encoding="utf-8")
