"""The frame of a report: head, style sheet and foot."""

import base64
import hashlib
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from rampart_fl.services.console.html_report.markup import Html, tag, text
from rampart_fl.services.console.html_report.style import STYLE


def page(kind: str, title: str, about: str, sections: Sequence[Html]) -> str:
    """A whole HTML file.

    Args:
        kind: what the report is about, such as "Run".
        title: title of the report.
        about: a sentence below the title.
        sections: the content.
    """
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=Html(policy)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{kind}: {title}"),
        tag("style", Html(STYLE)),
    )
    made = f"Made by rampart-fl {version('rampart-fl')} on Python {platform.python_version()}."
    body = tag(
        "body",
        tag("header", tag("p", kind, class_="kind"), tag("h1", title), tag("p", about)),
        tag("main", sections),
        tag("footer", tag("p", made)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def tiles(values: Mapping[str, Any]) -> Html:
    """The most important numbers, in large type."""
    return tag(
        "dl",
        [tag("div", tag("dt", name), tag("dd", value)) for name, value in values.items()],
        class_="tiles",
    )


def facts(values: Mapping[str, Any]) -> Html:
    """A list of names and values, without values that are None or empty."""
    return tag(
        "dl",
        [
            tag("div", tag("dt", name), tag("dd", value))
            for name, value in values.items()
            if value not in (None, "", [])
        ],
        class_="facts",
    )


def code(value: Any) -> Html:
    """A digest or a file name in a monospaced font."""
    return tag("code", text(value))
