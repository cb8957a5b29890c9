"""`rampart compare`: several runs side by side."""

from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import Ca, Json, Token, Url, connect, emit, say


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Ids of the runs.")],
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Compares two or more runs side by side: their metrics, and the settings that differ."""
    from rampart_fl.services.console.reports.comparison import comparison_table
    from rampart_fl.services.console.reports.run_reader import RunReader
    from rampart_fl.shared.figures.comparison import differences

    if len(runs) < 2:
        raise typer.BadParameter(
            "compare needs at least two run ids; the command `rampart runs` lists all runs"
        )
    operator = connect(url, token, ca)
    readers = [RunReader.of(operator.run(run)) for run in runs]
    figures = [reader.figures for reader in readers]
    settings = differences([reader.experiment.tables() for reader in readers])
    if as_json:
        each = [
            {"run": one.info.run, "state": one.info.state, **summary}
            for one, summary in zip(readers, figures, strict=True)
        ]
        emit({"runs": each, "settings": settings})
        return
    states = [reader.info.state for reader in readers]
    say(False, None, comparison_table(runs, states, figures, settings))
