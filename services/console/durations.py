"""Durations as text."""


def duration(seconds: float) -> str:
    """A duration as text, in its one or two largest units.

    >>> duration(9.25), duration(59.7), duration(75), duration(3 * 3600 + 120)
    ('9 s', '1 min', '1 min 15 s', '3 h 2 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (0 if hours else rest, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"
