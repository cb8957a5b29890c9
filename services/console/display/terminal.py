"""The terminal on which the console prints tables and progress."""

from rich.console import Console


def terminal(stderr: bool = False) -> Console:
    """A terminal that prints all texts as they are.

    Client ids, reasons and names of software come from other people. By default, rich would
    interpret markup such as `[conceal]` in these texts, and fail on markup such as `[/x]`.

    Args:
        stderr: whether to print on standard error instead of standard output.
    """
    return Console(stderr=stderr, markup=False, emoji=False)
