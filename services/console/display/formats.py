"""Fractions, durations, sizes and tables as plain text."""

from collections.abc import Sequence


def percent(share: float | None) -> str:
    """A fraction as text in percent; "-" for None.

    >>> percent(0.978), percent(None)
    ('97.8 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """A duration as text, in its one or two largest units.

    >>> duration(9.25), duration(59.7), duration(75), duration(3 * 3600 + 120)
    ('9 s', '1 min', '1 min 15 s', '3 h 2 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (0 if hours else rest, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows of cells as lines; each column is as wide as its widest cell.

    >>> print(aligned([["", "a-1"], ["rounds", "3"]]))
            a-1
    rounds  3
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def size(number: float | None) -> str:
    """A number of bytes as text.

    >>> size(512), size(1536), size(5 * 2**30), size(None)
    ('512 B', '1.5 KiB', '5.0 GiB', '-')
    """
    if number is None:
        return "-"
    if number < 1024:
        return f"{number:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.1f} {unit}"
    return f"{number / 1024:.1f} TiB"
