"""Tables of text that show every id and number in full, even on a narrow terminal."""

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from rampart_fl.services.console.display.terminal import terminal

FOLDED = 10
"""Minimum width of a column whose text may break over lines."""
WIDE = 10_000
"""The line width of output that goes to a file or to another program."""


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    text: Collection[str] = (),
    justify: JustifyMethod = "left",
    notes: Iterable[str] = (),
) -> None:
    """Prints a table on standard output, with a title above it and notes below it.

    If standard output is not a terminal, no line is broken. If the table is too wide for the
    terminal, it has no vertical lines. If it is still too wide, the terminal breaks its lines, so
    that all characters are visible.

    Args:
        headings: the names of the columns.
        rows: the cells of each row.
        title: a line above the table.
        text: columns that may break over lines if the terminal is narrow; all other columns contain
            ids, numbers or single words.
        justify: how the cells are aligned in their columns.
        notes: lines below the table, for texts that are too long for a column.
    """
    console = terminal()
    width = console.width if console.is_terminal else WIDE
    table = fitting_table(headings, [*rows], width, text=text, justify=justify)
    console.width = max(width, least_width(table))
    for line in [title] if title else []:
        console.print(Text(line), soft_wrap=True)
    console.print(table)
    for line in notes:
        console.print(Text(line), soft_wrap=True)


def fitting_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    text: Collection[str] = (),
    justify: JustifyMethod = "left",
) -> Table:
    """Makes a table; draws vertical lines only if the table with these lines fits into the width.

    Args:
        headings, rows, text, justify: as in `print_table`.
        width: number of characters in a line.
    """
    lined = _table(headings, rows, text, justify, plain=False)
    if least_width(lined) <= width:
        return lined
    return _table(headings, rows, text, justify, plain=True)


def least_width(table: Table) -> int:
    """The smallest width, in characters, at which rich shows all cells of the table in full."""
    columns = table.columns
    lines = 3 * len(columns) + 1 if table.show_edge else 2 * (len(columns) - 1)
    return sum(column.min_width or 0 for column in columns) + lines


def _table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: Collection[str],
    justify: JustifyMethod,
    plain: bool,
) -> Table:
    if plain:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    else:
        table = Table()
    for column, heading in enumerate(headings):
        cells = [heading, *(row[column] for row in rows)]
        least = max(cell_len(line) for cell in cells for line in cell.split("\n"))
        if heading in text:
            table.add_column(
                heading, justify=justify, overflow="fold", min_width=min(least, FOLDED)
            )
        else:
            table.add_column(heading, justify=justify, no_wrap=True, min_width=least)
    for row in rows:
        table.add_row(*row)
    return table
