"""Tables on terminals of any width, and in files."""

import io
import re

import pytest
from rich.console import Console

from rampart_fl.services.console.display.tables import fitting_table, least_width, print_table

IDS = [f"client-b9dd51e23ce{number}" for number in range(3)]
REASON = "1.36 of the tolerated distance and 3.91 of the tolerated movement above the medians"
HEADINGS = ("client", "slot", "online", "software")
ROWS = [(name, str(10 * at), "yes", "rampart-fl/0.1.0 (a site)") for at, name in enumerate(IDS)]


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Lets rich take standard output for a terminal of this width."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines on standard output, without the codes for bold and italic text."""
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_terminal_of_any_width_shows_whole_ids_numbers_and_headings(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_terminal(monkeypatch, width)
    print_table(HEADINGS, ROWS, text={"software"}, notes=[f"{IDS[2]} evicted: {REASON}"])
    lines = printed(capsys)
    assert all(heading in lines[0] + lines[1] for heading in HEADINGS)
    for row in ROWS:
        assert any(all(cell in line for cell in row[:3]) for line in lines)
    assert lines[-1] == f"{IDS[2]} evicted: {REASON}"
    if width >= 60:
        assert max(map(len, lines[:-1])) <= width


def test_lines_are_not_broken_if_standard_output_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    wide = " ".join(IDS * 9)
    print_table((*HEADINGS, "notes"), [(*row, wide) for row in ROWS], title=wide, text={"notes"})
    lines = printed(capsys)
    assert lines[0] == wide
    assert sum(wide in line for line in lines) == 1 + len(ROWS)


def test_text_of_other_people_does_not_widen_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_terminal(monkeypatch, 60)
    print_table(HEADINGS, [("ada", "0", "yes", "x" * 200)], text={"software"})
    lines = printed(capsys)
    assert max(map(len, lines)) <= 60
    assert "".join(lines).count("x") == 200


def test_table_of_the_least_width_is_whole() -> None:
    for width in (200, 10):
        table = fitting_table(HEADINGS, [("ada", "0", "yes", "x" * 30)], width, text={"software"})
        file = io.StringIO()
        Console(file=file, width=least_width(table)).print(table)
        assert file.getvalue().count("x") == 30
        assert max(map(len, file.getvalue().splitlines())) == least_width(table)
