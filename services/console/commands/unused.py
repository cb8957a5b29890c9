"""Refuses options that a command would ignore."""

import typer


def refuse_unused(context: typer.Context, reason: str, *names: str) -> None:
    """Refuses parameters that are given on the command line, but have no effect.

    Values from environment variables and defaults are never refused: they apply to many commands.

    Args:
        context: the command's context.
        reason: why the parameters have no effect; the first part of the error.
        names: the parameters of the command's function.
    Raises:
        BadParameter: at least one of the parameters is given on the command line.
    """
    given = [
        text if (text := parameter.opts[0]).startswith("-") else text.upper()
        for parameter in context.command.params
        if (name := parameter.name) in names
        and (source := context.get_parameter_source(name)) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise typer.BadParameter(f"{reason}; omit {', '.join(given)}")
