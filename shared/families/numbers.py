"""Refuses booleans in place of numbers, and numbers that are not finite; pydantic accepts both."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Literal, get_args, get_origin


def refuse_booleans(value: Any, annotation: Any) -> None:
    """Refuses `true` and `false` for a field if its type allows numbers but not booleans.

    Python's booleans are integers, so pydantic would read `true` as 1.

    Args:
        value: the value of the field; the items of lists are checked, too.
        annotation: the type of the field.
    Raises:
        ValueError: the value is, or contains, a boolean in place of a number.

    >>> refuse_booleans(True, int | None)
    Traceback (most recent call last):
    ValueError: true is not a number
    >>> refuse_booleans(True, bool), refuse_booleans([1, 2], list[int])
    (None, None)
    """
    given = [one for one in _items(value) if isinstance(one, bool)]
    if given:
        kinds = set(_kinds(annotation))
        if kinds & {int, float} and not kinds & {bool, Any, object}:
            raise ValueError(f"{str(given[0]).lower()} is not a number")


def refuse_non_finite(value: Any, where: str = "") -> None:
    """Refuses nan and infinities in a table whose values have no declared type.

    Raises:
        ValueError: the value is, or contains, a number that is not finite; the message names its
            key.

    >>> refuse_non_finite({"name": "ipm", "epsilon": float("nan")})
    Traceback (most recent call last):
    ValueError: epsilon: nan is not a finite number
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_non_finite(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            refuse_non_finite(inner, f"{where}.{number}")
    elif isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{where}: {value} is not a finite number")


def _items(value: Any) -> Iterator[Any]:
    """The value itself; for a list, all of its items, including the items of nested lists."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _items(item)
    else:
        yield value


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that occur in an annotation, such as `int` and `NoneType` in `int | None`."""
    if get_origin(annotation) is Literal:
        yield from map(type, get_args(annotation))
        return
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for one in inner:
        yield from _kinds(one)
