"""Commands that submit, list and delete the runs of a federation."""

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from rampart_fl.services.console.commands.connection import (
    PATIENCE,
    Ca,
    Json,
    Reason,
    Token,
    Url,
    connect,
    emit,
    say,
)
from rampart_fl.services.console.commands.monitoring import follow, wait_for_start
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.services.console.display.formats import aligned, size
from rampart_fl.services.console.display.tables import print_table
from rampart_fl.shared.protocol.audit import timestamp
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.protocol.runs import RunInfo

TIMES = {"submitted_at", "wait_until", "started_at", "ended_at"}
"""The fields of a `RunInfo` that are Unix times."""


def run(
    context: typer.Context,
    experiment: Annotated[
        str, typer.Argument(help="An experiment file, or the name of a shipped experiment.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, as in data.clients=6; may be repeated."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="First part of the run's id; by default, the experiment's name."),
    ] = None,
    submission: Annotated[
        str | None, typer.Option(help="A key; submissions with the same key create only one run.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(min=0, help="Maximum wait for the first round, in seconds.")
    ] = None,
    followed: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Follow the run to its end; exit with code 1 if the run fails or is cancelled.",
        ),
    ] = False,
    checked: Annotated[
        bool,
        typer.Option("--check", help="Only check the experiment, and estimate what it needs."),
    ] = False,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Submits an experiment to a running federation, which executes earlier submissions first."""
    from rampart_fl.shared.experiment import Experiment

    if checked:
        submitting = ("name", "submission", "wait", "followed", "reason")
        refuse_unused(context, "--check submits nothing", *submitting)
    chosen = Experiment.load(experiment)
    if settings:
        chosen = Experiment.from_tables(_apply_settings(chosen.tables(), settings))
    if chosen.start is not None and chosen.start.file is not None:
        # The worker has its own working directory, so the worker needs the absolute path.
        chosen = chosen.started_from(Path(chosen.start.file).absolute())
    operator = connect(url, token, ca, patience=PATIENCE)
    if checked:
        needs = operator.check(chosen)
        say(as_json, needs.model_dump(mode="json"), _needs(needs))
        return
    info = operator.submit(chosen, name, submission, wait, reason)
    if followed:
        submitted = operator.run(info.run)
        wait_for_start(submitted)
        follow(submitted)
        info = submitted.info()
    say(as_json, info.model_dump(mode="json"), _line(info))
    if followed and info.state != "finished":
        raise typer.Exit(1)


def _needs(estimate: Estimate) -> str:
    """Formats the estimate of a run's memory, disk and traffic."""
    rows = [
        ["numbers in the model", f"{estimate.parameters:,}"],
        ["clients in a round", f"{estimate.clients:,}"],
        ["memory of the worker", size(estimate.memory_bytes)],
        ["disk for blobs, at most", size(estimate.disk_bytes)],
        ["disk for records, included above", size(estimate.record_bytes)],
        ["received by a client in a round", size(estimate.down_bytes)],
        ["sent by a client in a round", size(estimate.up_bytes)],
        ["traffic of a client in all rounds", size(estimate.client_bytes)],
    ]
    return aligned(rows)


def _apply_settings(tables: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """Applies settings of the form PATH=VALUE to an experiment's tables; VALUE is TOML."""
    from rampart_fl.shared.experiment.sweep import put

    for text in settings:
        path, sign, value = text.partition("=")
        if not (path and sign):
            raise typer.BadParameter(f"--set {text}: write it as PATH=VALUE")
        try:
            put(tables, path, tomllib.loads(f"value = {value}")["value"])
        except tomllib.TOMLDecodeError:
            put(tables, path, value)  # VALUE may be text without quotes.
    return tables


def runs(
    context: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Id of the run to show; if omitted, runs are listed."),
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="Number of newest runs to list.")] = 100,
    before: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="List only runs older than this run (id or number)."),
    ] = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Lists the newest runs, or shows a run's state, its round, and what the run waits for."""
    if run is not None:
        refuse_unused(context, "an id shows only this run", "last", "before")
    operator = connect(url, token, ca)
    if run is not None:
        one = operator.run(run).info()
        if as_json:
            emit(one.model_dump(mode="json"))
            return
        for name, value in one.model_dump(mode="json").items():
            text = "" if value is None else timestamp(value) if name in TIMES else str(value)
            sys.stdout.write(f"{name:12} {text}".rstrip() + "\n")
        return
    infos = operator.runs(before, last)
    if as_json:
        emit([info.model_dump(mode="json") for info in infos])
        return
    rows = list[tuple[str, ...]]()
    for info in infos:
        # A cancelled run never opened a round, even if it had started.
        begun = info.started_at is not None and info.state != "cancelled"
        done = "-" if not begun else f"{info.round + 1} of {info.rounds}"
        rows.append((info.run, info.state, done, str(info.clients), str(info.evicted)))
    print_table(
        ("run", "state", "round", "clients", "evicted"),
        rows,
        notes=[f"{info.run} {info.state}: {note}" for info in infos if (note := _notes(info))],
    )


def delete(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run.")],
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Deletes a run that is queued or has ended, with its records, models and updates."""
    connect(url, token, ca).run(run).delete(reason)
    say(as_json, {"run": run, "deleted": True}, f"{run} is deleted")


def _line(info: RunInfo) -> str:
    """One line about a run."""
    notes = _notes(info)
    return f"{info.run} is {info.state}" + (f": {notes}" if notes else "")


def _notes(info: RunInfo) -> str:
    return f"waits for {info.waits_for}" if info.waits_for else info.reason
