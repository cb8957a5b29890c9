"""The exit code of commands that report a failed run in a table and go on with the other runs."""

import sys

import typer


def exit_if_failed(failed: int, runs: int) -> None:
    """Ends the command with exit code 1 if any of its runs failed."""
    if failed:
        sys.stderr.write(f"error: {failed} of {runs} runs failed; see the table\n")
        raise typer.Exit(1)
