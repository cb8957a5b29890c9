"""Commands that show the status, the rounds and the events of a run."""

import sys
import time
from typing import Annotated, Any

import typer

from rampart_fl.services.console.commands.connection import (
    PATIENCE,
    Ca,
    Json,
    Run,
    Token,
    Url,
    connect,
    emit,
)
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.services.console.connection.event_stream import follow_events
from rampart_fl.services.console.connection.operated_run import OperatedRun, require_finished
from rampart_fl.services.console.display.formats import percent
from rampart_fl.services.console.display.live_table import MODELS, LiveTable, two_lines
from rampart_fl.services.console.display.tables import print_table
from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.figures.client_metrics import accuracy, attack_success
from rampart_fl.shared.figures.duration import seconds_of
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import RunInfo


def status(
    run: Run = None, url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Shows the status of a run: phase, round, clients, and uploads received."""
    state = connect(url, token, ca).run(run).status()
    if as_json:
        emit(state.model_dump(mode="json"))
        return
    for name, value in state.model_dump(mode="json").items():
        sys.stdout.write(f"{name:12} {_in_words(name, value)}".rstrip() + "\n")


def _in_words(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "deadline":
        return f"in {max(0.0, value - time.time()):.0f} s"
    if isinstance(value, dict):
        value = [f"{key} {digest[:12]}" for key, digest in value.items()]
    return ", ".join(value) if isinstance(value, list) else str(value)


def rounds(
    context: typer.Context,
    number: Annotated[
        int | None, typer.Argument(help="Round to show with all its evidence.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="Number of rounds to list.")] = 20,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Lists finished rounds, or shows one round with its verdicts, scores and reasons."""
    if number is not None:
        refuse_unused(context, "a number shows only this round", "last")
    shown = connect(url, token, ca).run(run)
    if number is not None:
        records = shown.rounds(number, 1)
        if not records or records[0].round != number:
            raise RampartError(f"round {number} has not ended, or its record is no longer kept")
        if as_json:
            emit(records[0].model_dump(mode="json"))
            return
        _show_verdicts(records[0])
        return
    current = shown.status().round
    # The current round may or may not have ended, so read one more round than requested.
    records = [*shown.records(max(0, current - last), current, mixing=as_json)][-last:]
    if as_json:
        emit([record.model_dump(mode="json") for record in records])
        return
    if not records:
        sys.stdout.write("no round has ended\n")
        return
    _show_rounds(records)


def _show_rounds(records: list[RoundRecord]) -> None:
    """Prints one row per round; below the table, lists the clients that a round left out."""
    rows = [
        {
            "round": str(record.round),
            "status": record.status,
            "clients": str(len(record.participants)),
            **{
                MODELS[kind]: percent(accuracy(record.metrics, record.metrics, kind))
                for kind in ("customized", "personalized")
            },
            "backdoor": percent(attack_success(record.metrics, record.metrics, "customized")),
            "s": f"{seconds_of(record):.2f}",
        }
        for record in records
    ]
    if all(row["backdoor"] == "-" for row in rows):
        for row in rows:
            del row["backdoor"]
    notes = list[str]()
    for record in records:
        left_out = [v.client for v in record.verdicts if v.decision != "accepted"]
        if left_out:
            notes.append(f"round {record.round} left out {', '.join(left_out)}")
    print_table(
        [two_lines(name) for name in rows[0]],
        [[*row.values()] for row in rows],
        justify="right",
        notes=notes,
    )


def _show_verdicts(record: RoundRecord) -> None:
    """Prints a table with one row per client.

    The reasons are printed below the table, so that the table stays narrow.
    """
    notes = [
        f"{verdict.client} {verdict.decision}: {verdict.reason}"
        for verdict in record.verdicts
        if verdict.decision != "accepted" or verdict.asked is not None
    ]
    absent = [client for client in record.missing if client not in record.late]
    examined = {"judged, but not aggregated": record.examined}
    for why, clients in {"late": record.late, "absent": absent, **examined}.items():
        if clients:
            notes.append(f"{why}: {', '.join(clients)}")
    print_table(
        ("client", "decision", "detector", "score", "threshold", "weight"),
        [
            (
                verdict.client,
                verdict.decision,
                verdict.detector,
                "-" if verdict.score is None else f"{verdict.score:.4g}",
                "-" if verdict.threshold is None else f"{verdict.threshold:.4g}",
                f"{record.weights.get(verdict.client, 0):.3f}",
            )
            for verdict in record.verdicts
        ],
        title=f"round {record.round}: {record.status} {record.reason}".rstrip(),
        text={"detector"},
        notes=notes,
    )


def watch(
    events: Annotated[bool, typer.Option(help="Print events instead of the table.")] = False,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Follows a run until it ends; shows a live table, or prints one line per event.

    Exits with code 1 if the run fails or is cancelled.
    """
    watched = connect(url, token, ca, PATIENCE).run(run)
    wait_for_start(watched)
    if events or as_json:
        _print_events(watched, as_json)
    else:
        follow(watched)
    require_finished(watched.info())


def _print_events(run: OperatedRun, as_json: bool) -> None:
    """Prints each event of a run on one line, until the run ends."""
    shown = over = False
    for event in follow_events(run, PATIENCE):
        if not event and over:
            # The run was over at the previous tick, so all its events arrived before this tick.
            if not shown:
                sys.stderr.write(f"the events of {run.id} are no longer kept\n")
            return
        if not event:
            over = run.status().phase == "done"
            continue
        shown = True
        if as_json:
            emit(event)
        else:
            sys.stdout.write("  ".join(f"{key}={value}" for key, value in event.items()) + "\n")
        sys.stdout.flush()
        if event.get("type") == "ended":
            return


def wait_for_start(run: OperatedRun) -> None:
    """Waits until a run has started; while the run is queued, prints what the run waits for.

    Raises:
        RampartError: the run ended without starting.
    """

    def tell(info: RunInfo) -> None:
        sys.stderr.write(f"{info.run} waits for {info.waits_for}\n")
        sys.stderr.flush()

    info = run.await_start(float("inf"), tell)
    if info.started_at is None:
        raise RampartError(f"run {info.run} did not start ({info.state}): {info.reason}")


def follow(run: OperatedRun) -> None:
    """Shows a run as a live table until the run ends."""
    records = list[RoundRecord]()
    with LiveTable() as view:
        while True:
            state = run.status()
            since = records[-1].round + 1 if records else 0
            records += run.records(since, state.round, mixing=False)
            view.show(state, records)
            if state.phase == "done":
                return
            time.sleep(0.5)  # People cannot read a table that changes more often.
