"""Draws sentences at random from code and pages: `python -m tools.sentences --seed 1 --count 100`.

A person who does not know the project reads the drawn sentences, and marks each sentence that has
to be read twice. The sentences come from docstrings, comments, pages of the documentation, and all
texts that users see. Texts that users see are errors, logs, help of commands, descriptions of the
API's fields, reasons of verdicts, and the operators' page. The same seed draws the same sentences
as long as the text does not change.
"""

import argparse
import ast
import functools
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

from tools import page_texts
from tools.imports import ROOT

CODE = ("shared", "services", "src", "tools")
SHORTEST = 4
"""Minimum number of words; a shorter sentence is never hard to read."""
PLACEHOLDER = re.compile(r"\W*(?:\.\.\.|%[sdrif]|%\.\d+f|\{\d*\})\W*")
"""Matches a word that only stands for a value, such as `...` for a part of an f-string."""
SPLIT = re.compile(r"(?<=[.!?])\s+(?=[\"`(*\[]?[A-Z0-9`])")
ENTRY = re.compile(
    r" +\*{0,2}\w+(?:, \*{0,2}\w+)*: |[-*] |\d+\. |(?:Args|Returns|Raises|Yields|Legend):"
)
"""Matches a line of a docstring or page that begins a new paragraph."""
MARK = re.compile(r"^(?:[-*] |\d+\. |(?:Args|Returns|Raises|Yields|Legend):\s*)")
LOGS = {"debug", "info", "warning", "error", "exception"}
TOLD = {"because", "description", "help", "reason", "why"}
"""Names of arguments and variables whose strings are shown to users."""
REASONS = re.compile(r"reason|explain|verdict_for")
"""Matches the names of functions that make or get the reason of a decision."""


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
    """The texts that users see, such as errors and help; `...` stands for inserted values."""
    for node in ast.walk(tree):
        for part in _told(node):
            yield from (Passage(text.lineno, _text(text)) for text in _strings(part))


def _told(node: ast.AST) -> Sequence[ast.AST]:
    """The parts of a node whose strings are shown to users."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return [*node.exc.args, *node.exc.keywords]
    if isinstance(node, ast.Call):
        return node.args if _is_log(node.func) or REASONS.search(_name(node.func)) else []
    if isinstance(node, ast.FunctionDef):
        return node.body if REASONS.search(node.name) else []
    if isinstance(node, (ast.keyword, ast.Assign, ast.AugAssign)):
        name = node.arg if isinstance(node, ast.keyword) else _assigned(node)
        return [node.value] if name in TOLD else []
    return []


def _strings(node: ast.AST) -> Iterator[ast.expr]:
    """The strings in a piece of code, without docstrings and without the parts of f-strings."""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        yield node
    elif not isinstance(node, ast.Expr):
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


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


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _is_log(call: ast.expr) -> bool:
    named = isinstance(call, ast.Attribute) and _name(call.value) in {"log", "logger"}
    return named and _name(call) in LOGS


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "..." for part in node.values)
    return ""


def sentences_of(path: Path) -> list[Sentence]:
    """The different sentences of a module or page, each with the sentence before it."""
    text = path.read_text(encoding="utf-8")
    told, prose = _passages(path.suffix, text)
    file = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    complete = (one for one in _split(file, prose) if re.search(r"[.!?:][)*_`\"]*$", one.text))
    return _different([*_split(file, told), *complete])


Part = tuple[str, str]
"""The name of a function, class, variable or section, and a text that it contains."""


def _passages(suffix: str, text: str) -> tuple[list[Part], list[Part]]:
    """The texts in a file that users see, and then the file's prose, in complete sentences."""
    if suffix == ".md":
        return [], [(head, part) for head, text in sections(text) for part in paragraphs(text)]
    if suffix == ".html":
        return [("", part) for part in page_texts.html_texts(text)], []
    if suffix == ".js":
        prose = [part for one in page_texts.comments(text) for part in paragraphs(one)]
        told = page_texts.script_texts(text)
        return [("", part) for part in told], [("", part) for part in prose]
    tree = ast.parse(text)
    within = names(tree)
    described = [(line, part) for line, text in docstrings(tree) for part in paragraphs(text)]
    return (
        [(within.get(line, ""), part) for line, part in messages(tree)],
        [(within.get(line, ""), part) for line, part in (*described, *comments(text))],
    )


def _split(file: str, parts: Iterable[Part]) -> Iterator[Sentence]:
    """The sentences of some texts, without those that have very few words."""
    for where, part in parts:
        for before, one in pairwise(["", *split(part)]):
            words = [word for word in one.split() if not PLACEHOLDER.fullmatch(word)]
            if len(words) >= SHORTEST and re.search(r"[a-z]{2}", one):
                yield Sentence(f"{file}, {where}" if where else file, one, before)


def _different(every: Iterable[Sentence]) -> list[Sentence]:
    """The sentences without repetitions; of equal sentences, only the first is kept."""
    return list({one.text: one for one in reversed([*every])}.values())[::-1]


def files() -> list[Path]:
    """The modules and pages, sorted."""
    code = (path for top in CODE for path in (ROOT / top).rglob("*.py"))
    pages = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *page_texts.files())
    ours = {path.resolve() for path in (*code, *pages) if "node_modules" not in path.parts}
    return sorted(ours)


@functools.cache
def all_sentences() -> tuple[Sentence, ...]:
    """The sentences of all files."""
    return tuple(one for path in files() for one in sentences_of(path))


def draw(seed: int, count: int) -> list[Sentence]:
    """Draws `count` different sentences."""
    return random.Random(seed).sample(all_sentences(), count)


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
