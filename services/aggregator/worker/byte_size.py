"""Writes numbers of bytes as people read them, for messages to operators."""

from pydantic import ByteSize


def readable(size: int) -> str:
    """A number of bytes with a binary unit.

    >>> readable(75_366)
    '73.6 KiB'
    """
    return ByteSize(size).human_readable(separator=" ")
