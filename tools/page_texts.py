"""Finds the comments and texts of the operators' page, in its JavaScript and HTML files."""

import re
from collections.abc import Iterator
from pathlib import Path

from tools.imports import ROOT

PAGE = ROOT / "services/aggregator/page"
CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|[`{}]', re.DOTALL)
"""Matches comments, strings, braces, and the start of a template; for text outside of templates."""
TEMPLATE = re.compile(r"\\.|`|\$\{", re.DOTALL)
"""Matches escapes, the end of a template, and the start of an inserted value; for text in a
template."""
INLINE = re.compile(r"</?(?:a|abbr|b|code|em|i|kbd|span|strong|time)\b[^>]*>")
"""Matches tags that may stand in the middle of a sentence."""
TOLD = re.compile(r'\b(?:alt|aria-label|placeholder|title)="([^"]*)"')
"""Matches attributes that the page shows or reads aloud."""


def files() -> list[Path]:
    """The page's own files, sorted; the libraries in `vendor` are not ours."""
    found = (path for ending in ("html", "js") for path in PAGE.rglob(f"*.{ending}"))
    return sorted(path for path in found if "vendor" not in path.parts)


def comments(code: str) -> Iterator[str]:
    r"""The prose of a script's comments, without JSDoc's tags such as `@param`.

    >>> list(comments('/**\n * Adds\n * x.\n * @param {any} x\n */\nlet y = "//"; // Two.'))
    ['Adds\nx.', 'Two.']
    """
    for piece in _pieces(code):
        if piece.startswith("/"):
            lines = re.sub(r"^/[/*]+|\*/$|^\s*\*(?!/)", "", piece, flags=re.MULTILINE).splitlines()
            yield re.split(r"@\w", "\n".join(line.strip() for line in lines))[0].strip()


def script_texts(code: str) -> Iterator[str]:
    """The strings of a script, and the texts of its templates; `...` stands for inserted values.

    >>> list(script_texts('html`<p title="Why">There are ${n || "no"} <b>rounds</b>.</p>`'))
    ['no', 'Why', 'There are ... rounds.']
    """
    for piece in _pieces(code):
        if piece.startswith('"'):
            yield piece[1:-1]
        elif piece.startswith("`"):
            yield from html_texts(piece[1:-1])


def html_texts(html: str) -> Iterator[str]:
    """The texts of a piece of HTML, including its attributes' texts.

    >>> list(html_texts('<label>The <code>name</code><input placeholder="A name"></label>'))
    ['A name', 'The name']
    """
    yield from TOLD.findall(html)
    for text in re.split(r"<[^>]*>", INLINE.sub("", html)):
        if text.strip():
            yield " ".join(text.split())


def _pieces(code: str) -> Iterator[str]:
    """The comments, strings and templates of a script; a template comes after its contents."""
    opened, templates, at = list[str](), list[list[str]](), 0
    while found := (TEMPLATE if opened[-1:] == ["`"] else CODE).search(code, at):
        inside, piece = opened[-1:] == ["`"], found[0]
        if inside:
            templates[-1].append(code[at : found.start()])
        at = found.end()
        if inside and piece == "`":
            opened.pop()
            yield f"`{''.join(templates.pop())}`"
        elif piece in {"`", "{", "${"}:
            opened.append(piece)
            templates += [[]] if piece == "`" else []
        elif piece == "}":
            if opened.pop() == "${":
                templates[-1].append("...")
        elif inside:
            templates[-1].append(piece)
        else:
            yield piece
    assert not opened, f"these are never closed: {opened}"
