"""Formats numbers of bytes for messages to operators, such as 8.2 GiB."""

from pydantic import ByteSize


def readable(size: int) -> str:
    """A number of bytes with a binary unit.

    >>> readable(75_366)
    '73.6 KiB'
    """
    return ByteSize(size).human_readable(separator=" ")
