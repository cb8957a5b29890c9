"""Jobs that only one module may do, with exceptions that have a reason, and private interfaces."""

import ast
import re
from collections.abc import Iterator

import pytest

from tools.imports import MODULES, ROOT

NODES = {module: [*ast.walk(ast.parse(path.read_text()))] for module, path in MODULES.items()}
"""The nodes of every module's syntax tree."""
CEILINGS = ROOT / "docs/decisions/0011-version-ceilings.md"
PUBLIC = {"_asdict", "_replace", "_exit"}
"""Names that Python documents, although they begin with an underscore."""


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a node gives to functions, classes, variables and attributes of `self`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield from [node.attr] if ast.unparse(node.value) in {"self", "cls"} else []


def _private_uses(node: ast.AST) -> Iterator[str]:
    """The private attributes, names and modules that a node reads or imports."""
    used = list[str]()
    if isinstance(node, ast.Attribute):
        used = [node.attr]
    elif isinstance(node, ast.Import | ast.ImportFrom):
        names = (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
        used = [part for name in names for part in name.split(".")]
    yield from (name for name in used if _private(name))


@pytest.mark.slow
def test_record_names_the_private_interfaces_of_other_packages() -> None:
    every = [node for nodes in NODES.values() for node in nodes]
    ours = {name for node in every for name in _defined(node)}
    used = {name for node in every for name in _private_uses(node)}
    named = set(re.findall(r"`(?:\w+\.)*(_\w+)`", CEILINGS.read_text()))
    assert used - ours - PUBLIC <= named
    assert named <= used, "the record names an interface that no code uses"
    nodes = ast.walk(ast.parse("import a._b\nfrom c import _d\ne._f"))
    assert {name for node in nodes for name in _private_uses(node)} == {"_b", "_d", "_f"}
