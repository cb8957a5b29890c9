"""`rampart export`: writes one run to a folder."""

from pathlib import Path
from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import Ca, Json, Token, Url, connect, say


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run that has ended.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Writes a run to a folder: records, metrics, final models, experiment and provenance."""
    from rampart_fl.services.console.reports.export import export as write
    from rampart_fl.services.console.reports.run_reader import RunReader

    operator = connect(url, token, ca)
    provenance = write(RunReader.of(operator.run(run)), folder)
    number = len(provenance["models"])
    models = f"{number} model{'' if number == 1 else 's'}"
    text = f"{run}: {models} and all records are in {folder}"
    say(as_json, {**provenance, "folder": str(folder)}, text)
