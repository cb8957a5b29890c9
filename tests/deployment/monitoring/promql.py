"""A parser of PromQL, as far as our alerts and dashboards use it: names, labels and grammar."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s*(?:
    (?P<duration>\d+(?:ms|[smhdwy])|\$__rate_interval)
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<text>"[^"]*")
    |(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
    |(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],])
    )""",
    re.VERBOSE,
)
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk"}
FUNCTIONS = {"increase", "rate", "changes", "max_over_time", "histogram_quantile"}
OVER_TIME = {"increase", "rate", "changes", "max_over_time"}
"""Functions whose argument is a range."""
BINARY = [{"or"}, {"and", "unless"}, {"==", "!=", ">=", "<=", "<", ">"}, {"+", "-"}, {"*", "/"}]
"""Operators between two expressions, the weakest first."""


class Wrong(ValueError):
    """The text is not a valid expression."""


@dataclass
class Found:
    """What an expression names.

    Args:
        series: each series, with its matchers: label, operator, value.
        labels: labels after `by`, `on` and `ignoring`.
    """

    series: list[tuple[str, list[tuple[str, str, str]]]] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)


class Parser:
    """Reads one expression by recursive descent."""

    def __init__(self, text: str) -> None:
        self.found = Found()
        self._tokens = list(tokens(text))
        self._at = 0

    def whole(self) -> Found:
        """Reads the whole text."""
        self.binary(0)
        if self._kind != "end":
            raise Wrong(f"{self._text!r} follows an expression")
        return self.found

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _text(self) -> str:
        return self._tokens[self._at][1]

    def take(self, *wanted: str) -> str:
        """The next token, which is one of these texts or kinds."""
        kind, text = self._tokens[self._at]
        if text not in wanted and kind not in wanted:
            raise Wrong(f"{text!r} instead of {' or '.join(wanted)}")
        self._at += 1
        return text

    def binary(self, level: int) -> None:
        """Operands of one strength and the operators between them."""
        if level == len(BINARY):
            return self.operand()
        self.binary(level + 1)
        while self._text in BINARY[level]:
            self.take(self._text)
            if self._text in {"on", "ignoring"}:
                self.take(self._text)
                self.names()
            self.binary(level + 1)
        return None

    def operand(self) -> None:
        """A number, a call, an aggregation, a series, or an expression in parentheses."""
        if self._kind == "number":
            self.take("number")
        elif self._text == "(":
            self.parenthesis()
        elif self._kind == "name" and self._text in AGGREGATIONS:
            self.take("name")
            if self._text == "by":
                self.take("by")
                self.names()
            self.parenthesis()
        elif self._kind == "name" and self._text in FUNCTIONS:
            over_time = self.take("name") in OVER_TIME
            self.take("(")
            while True:
                self.selector(ranged=True) if over_time else self.binary(0)
                if self.take(",", ")") == ")":
                    return
        else:
            self.selector(ranged=False)

    def parenthesis(self) -> None:
        """An expression in parentheses."""
        self.take("(")
        self.binary(0)
        self.take(")")

    def names(self) -> None:
        """Labels in parentheses."""
        self.take("(")
        while True:
            self.found.labels.add(self.take("name"))
            if self.take(",", ")") == ")":
                return

    def selector(self, ranged: bool) -> None:
        """A series with its matchers, a range if one is needed, and an offset."""
        name, matchers = self.take("name"), []
        if self._text == "{":
            self.take("{")
            while self._text != "}":
                label, operator = self.take("name"), self.take("=", "!=", "=~", "!~")
                matchers.append((label, operator, self.take("text").strip('"')))
                if self._text != "}":
                    self.take(",")
            self.take("}")
        if ranged:
            self.take("[")
            self.take("duration")
            self.take("]")
        if self._text == "offset":
            self.take("offset")
            self.take("duration")
        self.found.series.append((name, matchers))


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each token, then `end`."""
    at, text = 0, text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise Wrong(f"no token: {text[at : at + 20]!r}")
        kind = str(match.lastgroup)
        yield kind, match[kind]
        at = match.end()
    yield "end", ""


def parse(text: str) -> Found:
    """What an expression names.

    Raises:
        Wrong: the text is not a valid expression.
    """
    return Parser(text).whole()
