"""Analyses the imports between modules, for architecture tests and diagrams."""

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    ".".join(("rampart_fl", *path.relative_to(base).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for base, top in ((ROOT, "shared"), (ROOT, "services"), (ROOT / "src/rampart_fl", ""))
    for path in sorted((base / top).rglob("*.py"))
}
"""The path of every module of the wheel, keyed by the name that imports use."""


@cache
def imports(module: str) -> tuple[tuple[str, bool], ...]:
    """The modules that a module imports, and whether Python executes each import at load time.

    The second value of each pair is True if Python executes the import as soon as it loads the
    module. It is False for imports in functions, and for imports for type checking only.

    >>> dict(imports("rampart_fl.shared.families.plugins"))["rampart_fl.shared.errors"]
    True
    """
    return tuple(_imports(ast.parse(MODULES[module].read_text(encoding="utf-8")), module, True))


def _imports(node: ast.AST, module: str, loaded: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, loaded) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module}: imports are absolute"
            assert child.module is not None
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield (inner if inner in MODULES else child.module, loaded)
        else:
            yield from _imports(child, module, loaded and not _is_deferred(child))


def _is_deferred(node: ast.AST) -> bool:
    """Whether Python skips the imports in this statement when it loads the module."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def imports_of_ours(module: str) -> set[str]:
    """The modules of Rampart that a module imports, including imports in functions."""
    return {name for name, _ in imports(module) if name in MODULES and name != module}


def within(module: str, packages: Collection[str]) -> bool:
    """Whether a module is one of these packages or is in one of them.

    >>> within("a.b.c", {"a.b"}), within("a.bc", {"a.b"})
    (True, False)
    """
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def service(module: str) -> str:
    """The service to which a module belongs.

    >>> service("rampart_fl.services.aggregator.api.app")
    'rampart_fl.services.aggregator'
    """
    return ".".join(module.split(".")[:3])


def loaded_modules(module: str) -> dict[str, str]:
    """The modules that are loaded if a module is imported, each with the module that imports it."""
    importers, waiting = {module: ""}, [module]
    while waiting:
        current = waiting.pop()
        if current not in MODULES:
            continue
        parts = current.split(".")
        parents = [".".join(parts[:depth]) for depth in range(1, len(parts))]
        for imported in [*parents, *(name for name, loaded in imports(current) if loaded)]:
            if imported not in importers:
                importers[imported] = current
                waiting.append(imported)
    return importers


def reach(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    """The nodes that can be reached from a node, including the node itself if it is in a cycle.

    >>> sorted(reach({"a": ["b"], "b": ["c"], "c": ["b"]}, "b"))
    ['b', 'c']
    """
    reachable, waiting = set[str](), [start]
    while waiting:
        new = set(graph[waiting.pop()]) - reachable
        reachable |= new
        waiting += new
    return reachable


def cycles(graph: Mapping[str, Collection[str]]) -> list[frozenset[str]]:
    """The cycles of a graph: each is a set of nodes that can all reach each other.

    >>> cycles({"a": ["b"], "b": ["c"], "c": ["b"]}) == [frozenset("bc")]
    True
    """
    reachable = {start: reach(graph, start) for start in graph}
    sets = {
        frozenset(node for node in reachable[start] if start in reachable[node])
        for start in graph
        if start in reachable[start]
    }
    return sorted(sets, key=sorted)
