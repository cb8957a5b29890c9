"""`rampart clients ID`: what one client did in the newest runs of the federation."""

from rampart_fl.services.console.commands.connection import emit
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.display.tables import print_table
from rampart_fl.services.console.reports.history import history
from rampart_fl.services.console.reports.run_reader import RunReader


def show_history(
    operator: Operator, client: str, last: int, before: str | None, as_json: bool
) -> None:
    """Shows what one client did in the newest runs, with the oldest of these runs first.

    If `before` names a run, only runs older than this run are shown.
    """
    enrolled = operator.client(client)  # Raises an error if the client is not enrolled.
    runs = operator.runs(before, last)
    readers = (RunReader(operator.run(info.run), info) for info in runs)
    parts = list(history(readers, client))
    if as_json:
        emit([part.as_json() for part in parts])
        return
    rows = list[tuple[str, ...]]()
    for part in parts:
        decisions = ", ".join(f"{number} {name}" for name, number in part.decisions.items())
        slot = "-" if part.slot is None else str(part.slot)
        rows.append((part.run, part.state, part.answer or "-", slot, decisions or "-"))
    print_table(
        ("run", "state", "answer", "slot", "decisions"),
        rows,
        title=f"{client} {enrolled.software}".rstrip(),
        text={"decisions"},
        notes=[f"{part.run}: {note}" for part in parts if (note := part.barred or part.reason)],
    )
