"""Draws sentences at random from code and pages: `python -m tools.sentences --seed 1 --count 100`.

A person who does not know the project reads the drawn sentences, and marks each sentence that has
to be read twice. The sentences come from docstrings, comments, error and log messages, and pages.
The same seed draws the same sentences as long as the text does not change.
"""

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tools.imports import ROOT

CODE = ("shared", "services", "src", "tools")
SHORTEST = 4
"""Minimum number of words; a shorter sentence is never hard to read."""
SPLIT = re.compile(r"(?<=[.!?])\s+(?=[\"`(*\[]?[A-Z0-9`])")
ENTRY = re.compile(
    r" +\*{0,2}\w+(?:, \*{0,2}\w+)*: |[-*] |\d+\. |(?:Args|Returns|Raises|Yields|Legend):"
)
"""Matches a line of a docstring or page that begins a new paragraph."""
MARK = re.compile(r"^(?:[-*] |\d+\. |(?:Args|Returns|Raises|Yields|Legend):\s*)")
LOGS = {"debug", "info", "warning", "error", "exception"}


class Passage(NamedTuple):
    """A docstring, comment, message, or section of a page."""

    line: int
    """Number of its first line; the first line of a file has the number 1."""
    text: str


class Sentence(NamedTuple):
    """One sentence, and where it stands."""

    place: str
    """The file; then the function, class or variable, or the heading of the page's section."""
    text: str
    before: str = ""
    """The previous sentence of the same paragraph; empty for the first sentence of a paragraph."""


def split(paragraph: str) -> list[str]:
    """The sentences of a paragraph.

    >>> split("The worker stops. `up` says why, e.g. a full disk.")
    ['The worker stops.', '`up` says why, e.g. a full disk.']
    """
    return [one for one in SPLIT.split(" ".join(paragraph.split())) if one]


def paragraphs(text: str) -> Iterator[str]:
    r"""The paragraphs of a docstring or page, without examples, headings and tables.

    >>> list(paragraphs("One\ntwo.\n\n>>> 1 + 1\n2\n\nArgs:\n    a: the first.\n    b: the last."))
    ['One two.', 'a: the first.', 'b: the last.']
    """
    lines, fenced, example = list[str](), False, False
    for line in (*text.splitlines(), ""):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif line.lstrip().startswith(">>> "):
            example = True
        example = example and bool(line.strip())
        skipped = fenced or example or line.lstrip().startswith(("#", "|", "```", "~~~", "<"))
        if lines and (skipped or not line.strip() or ENTRY.match(line)):
            paragraph = MARK.sub("", " ".join(lines))
            if paragraph:
                yield paragraph
            lines = []
        if line.strip() and not skipped:
            lines.append(line.strip())


def docstrings(tree: ast.Module) -> Iterator[Passage]:
    """The docstrings of a module, and of its classes, functions and variables."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield Passage(value.lineno, cleandoc(value.value))


def comments(code: str) -> Iterator[Passage]:
    """The comments of a module; comments on consecutive lines are joined."""
    block, last = list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT or re.match(r"# *(?:noqa|type:|fmt:|--|!)", token.string):
            continue
        if block and token.start[0] != last + 1:
            yield Passage(last, " ".join(block))
            block = []
        block.append(token.string.lstrip("# "))
        last = token.start[0]
    yield Passage(last, " ".join(block))


def messages(tree: ast.Module) -> Iterator[Passage]:
    """The texts of raised errors and of logs; `...` stands for inserted values."""
    for node in ast.walk(tree):
        call: ast.AST | None = node.exc if isinstance(node, ast.Raise) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            call = node if node.func.attr in LOGS and _is_log(node.func.value) else None
        for text in call.args if isinstance(call, ast.Call) else ():
            yield Passage(text.lineno, _text(text))


def sections(page: str) -> Iterator[tuple[str, str]]:
    """The headings of a page, each with the text below it; the first heading may be empty.

    >>> list(sections("# One\\nText.\\n## Two\\nMore."))
    [('', ''), ('One', 'Text.'), ('Two', 'More.')]
    """
    heading, lines, fenced = "", list[str](), False
    for line in page.splitlines():
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if line.startswith("#") and not fenced:
            yield heading, "\n".join(lines)
            heading, lines = line.lstrip("# "), []
        else:
            lines.append(line)
    yield heading, "\n".join(lines)


def names(tree: ast.Module) -> dict[int, str]:
    """The innermost function, class or variable that each line belongs to, keyed by line number."""
    found = dict[int, str]()

    def visit(node: ast.AST, outer: str) -> None:
        statements = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        for one, following in pairwise([*statements, ast.Pass()]):
            name = getattr(one, "name", None) or _assigned(one)
            inner = f"{outer}.{name}".lstrip(".") if name else outer
            last = following if _assigned(one) and isinstance(following, ast.Expr) else one
            if name:
                found.update(dict.fromkeys(range(one.lineno, (last.end_lineno or 0) + 1), inner))
            visit(one, inner)

    visit(tree, "")
    return found


def _assigned(node: ast.stmt) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return targets[0].id if isinstance(targets[0], ast.Name) else ""


def _is_log(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"log", "logger"}


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "..." for part in node.values)
    return ""


def sentences_of(path: Path) -> list[Sentence]:
    """The different sentences of a Python module or of a page, each with the sentence before it."""
    text = path.read_text(encoding="utf-8")
    file = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    if path.suffix == ".md":
        parts = [(head, part) for head, text in sections(text) for part in paragraphs(text)]
        return _different(_complete(file, parts))
    tree = ast.parse(text)
    within = names(tree)
    prose = [(line, part) for line, text in docstrings(tree) for part in paragraphs(text)]
    told = [
        Sentence(_place(file, within.get(line, "")), text)
        for line, text in messages(tree)
        if _long(text)
    ]
    parts = [(within.get(line, ""), text) for line, text in (*prose, *comments(text))]
    return _different([*told, *_complete(file, parts)])


def _complete(file: str, parts: Iterable[tuple[str, str]]) -> Iterator[Sentence]:
    """The complete sentences of some paragraphs, each with the sentence before it."""
    for where, part in parts:
        for before, one in pairwise(["", *split(part)]):
            if _long(one) and re.search(r"[.!?:][)*_`\"]*$", one):
                yield Sentence(_place(file, where), one, before)


def _different(every: Iterable[Sentence]) -> list[Sentence]:
    """Only the first of several equal sentences."""
    return list({one.text: one for one in reversed([*every])}.values())[::-1]


def _place(file: str, where: str) -> str:
    return f"{file}, {where}" if where else file


def _long(sentence: str) -> bool:
    return len(sentence.split()) >= SHORTEST


def files() -> list[Path]:
    """The modules and pages, sorted."""
    code = (path for top in CODE for path in (ROOT / top).rglob("*.py"))
    pages = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    ours = {path.resolve() for path in (*code, *pages) if "node_modules" not in path.parts}
    return sorted(ours)


def draw(seed: int, count: int) -> list[Sentence]:
    """Draws `count` different sentences."""
    everything = [one for path in files() for one in sentences_of(path)]
    return random.Random(seed).sample(everything, count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the drawn sentences, numbered, each with its place and the sentence before it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args(arguments)
    for number, one in enumerate(draw(options.seed, options.count), 1):
        after = f", after: {one.before}" if one.before else ""
        sys.stdout.write(f"{number}. {one.text}\n   ({one.place}{after})\n")


if __name__ == "__main__":
    main()
