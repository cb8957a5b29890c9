"""HTML and SVG elements; every text that is not already markup is escaped."""

import html
from collections.abc import Iterable
from typing import Any

VOID = {"meta", "br", "hr"}
"""Elements without an end tag."""


class Html(str):
    """Text that is already markup, so it is not escaped again."""

    __slots__ = ()


def text(value: Any) -> Html:
    """Converts a value to escaped HTML; shows unprintable characters as hexadecimal numbers.

    Unprintable characters include those that reverse the direction of text.

    >>> text("<img src=x>"), text("a\\u202eb"), text(Html("<b>"))
    ('&lt;img src=x&gt;', 'a\\\\u202eb', '<b>')
    """
    if isinstance(value, Html):
        return value
    shown = (c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in str(value))
    return Html(html.escape("".join(shown)))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element.

    Args:
        name: the element's name.
        children: the element's content, escaped unless it is `Html`; the items of an iterable are
            concatenated.
        attributes: the element's attributes. In their names, a final "_" is removed, and any other
            "_" becomes "-". Attributes with the value None are left out. Floats are rounded to two
            decimals.

    >>> tag("td", "a & b", class_="x", title=None)
    '<td class="x">a &amp; b</td>'
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{pairs}>")
    return Html(f"<{name}{pairs}>{join(children)}</{name}>")


def join(children: Iterable[Any]) -> Html:
    """Concatenates children without an enclosing element.

    >>> join(["<", [Html("<b>"), 1]])
    '&lt;<b>1'
    """
    return Html(
        "".join(
            text(child)
            if isinstance(child, str) or not isinstance(child, Iterable)
            else join(child)
            for child in children
        )
    )


def _attribute(value: Any) -> Html:
    if isinstance(value, float):
        return Html(f"{value:.2f}".rstrip("0").rstrip("."))
    return text(value)


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]], numbers: Iterable[int] = ()) -> Html:
    """A table.

    Args:
        head: titles of the columns.
        rows: cells of each row, in order; a cell can also be a complete `<td>` element.
        numbers: indices of the columns with numbers; these columns are right-aligned.
    """
    right = set(numbers)

    def cell(column: int, content: Any) -> Html:
        if isinstance(content, Html) and content.startswith("<td"):
            return content
        return tag("td", content, class_="number" if column in right else None)

    titles = [
        tag("th", title, scope="col", class_="number" if column in right else None)
        for column, title in enumerate(head)
    ]
    body = [tag("tr", [cell(column, one) for column, one in enumerate(row)]) for row in rows]
    whole = tag("table", tag("thead", tag("tr", titles)), tag("tbody", body))
    return tag("div", whole, class_="wide")


def section(title: str, *children: Any) -> Html:
    """A section with a title."""
    return tag("section", tag("h2", title), *children)
