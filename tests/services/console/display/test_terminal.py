"""Texts of other people are printed as they are, not interpreted as markup."""

from typing import Any

import pytest
from rich.table import Table

from rampart_fl.services.console.display.progress import Progress
from rampart_fl.services.console.display.terminal import terminal
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord

HOSTILE = ("evil[/x]", "[conceal]hidden", ":warning:", "[link=http://x]")


@pytest.mark.parametrize("text", HOSTILE)
def test_tables_show_markup_as_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    terminal().print(table)
    assert capsys.readouterr().out.count(text) == 3


@pytest.mark.parametrize("text", HOSTILE)
def test_progress_shows_markup_as_text(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress(text, total=2) as progress:
        progress.show(1, label=text)
        progress._bar.refresh()
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("text", HOSTILE)
def test_list_of_clients_survives_a_hostile_client(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rampart_fl.services.console.commands import clients
    from rampart_fl.shared.protocol.clients import ClientInfo

    monkeypatch.setenv("COLUMNS", "150")
    made: dict[str, Any] = {"client_id": "mallory", "registered_at": 1.0, "last_seen": None}
    clients._print_clients([ClientInfo(**made, online=True, software=text)], as_json=False)
    assert text in capsys.readouterr().out


def test_verdicts_of_a_round_survive_a_hostile_reason(capsys: pytest.CaptureFixture[str]) -> None:
    from rampart_fl.services.console.commands.monitoring import _show_verdicts

    verdict = VerdictRecord(
        client="mallory",
        decision="rejected",
        detector="own[/x]",
        reason="r[/x]",
        score=1,
        threshold=0,
    )
    _show_verdicts(RoundRecord(round=0, status="failed", reason="no[/y]", verdicts=[verdict]))
    said = capsys.readouterr().out
    assert "own[/x]" in said and "r[/x]" in said and "no[/y]" in said
