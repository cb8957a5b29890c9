"""Writes the packages and their imports to `docs/architecture.md`: `python -m tools.architecture`.

The generated parts of the page are between markers; a test fails if they are not up to date.
"""

import ast
import re
from collections.abc import Mapping
from functools import cache
from itertools import groupby, takewhile

from tools.imports import MODULES, ROOT, cycles, imports_of_ours, reach

PATH = ROOT / "docs" / "architecture.md"
TOP = "rampart_fl"
Graph = dict[str, set[str]]
"""For each package, such as `shared/robust` or `services/aggregator/api`, the packages that it
imports."""


def package(module: str) -> str | None:
    """The diagram's package to which a module belongs; None if there is no such package.

    A module directly in `shared` is treated as a package. If a service has subpackages, the modules
    directly in the service belong to no package of the diagram.

    >>> package("rampart_fl.shared.robust.rules.krum"), package("rampart_fl.shared.errors")
    ('shared/robust', 'shared/errors')
    >>> package("rampart_fl.services.aggregator.api.routes.models")
    'services/aggregator/api'
    >>> package("rampart_fl.services.attacker.hostile")
    'services/attacker'
    >>> package("rampart_fl.services.aggregator.settings")
    """
    _, *parts = module.split(".")
    if parts[:1] == ["shared"] and len(parts) > 1:
        return "/".join(parts[:2])
    if parts[:1] == ["services"] and len(parts) > 1:
        rooms = subpackages(parts[1])
        if not rooms:
            return "/".join(parts[:2])
        if len(parts) > 2 and parts[2] in rooms:
            return "/".join(parts[:3])
    return None


@cache
def subpackages(service: str) -> tuple[str, ...]:
    """The names of a service's subpackages.

    >>> subpackages("aggregator")
    ('api', 'state', 'worker')
    """
    folder = ROOT / "services" / service
    return tuple(sorted(path.parent.name for path in folder.glob("*/__init__.py")))


def dependencies() -> Graph:
    """The packages that each package imports.

    If a module belongs to no package, its imports count as imports of each package that imports the
    module.
    """
    graph: Graph = {name: set() for name in map(package, MODULES) if name is not None}
    for module in MODULES:
        start = package(module)
        if start is not None:
            graph[start] |= _imported(module) - {start}
    return graph


def _imported(module: str) -> set[str]:
    packages = set[str]()
    for name in imports_of_ours(module):
        target = package(name)
        packages |= {target} if target is not None else _imported(name)
    return packages


def layers(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The layers of an acyclic graph from top to bottom; each layer imports only layers below it.

    >>> layers({"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}})
    [['a'], ['b', 'd'], ['c']]
    """
    assert not cycles(graph), f"packages import each other: {cycles(graph)}"
    left, result = dict(graph), list[list[str]]()
    while left:
        lowest = sorted(name for name in left if not graph[name] & left.keys())
        result.insert(0, lowest)
        left = {name: imported for name, imported in left.items() if name not in lowest}
    return result


def transitive_reduction(graph: Mapping[str, set[str]]) -> Graph:
    """The transitive reduction: the graph without arrows that other arrows imply.

    >>> graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    >>> transitive_reduction(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}
    True
    """
    indirect = {
        name: {below for other in imported for below in reach(graph, other)}
        for name, imported in graph.items()
    }
    return {name: imported - indirect[name] for name, imported in graph.items()}


def picture() -> str:
    """The dependencies as a Mermaid graph."""
    graph = dependencies()
    order = [name for layer in layers(graph) for name in layer]
    lines = ["```mermaid", "flowchart TD"]
    groups = dict.fromkeys(map(_group, order))
    for group in groups:
        nodes = [f"{_key(name)}[{_label(name)}]" for name in order if _group(name) == group]
        lines += [f"  subgraph {_key(group)}[{group}]", *(f"    {node}" for node in nodes), "  end"]
    arrows = transitive_reduction(graph)
    lines += [f"  {_key(name)} --> {_key(to)}" for name in order for to in sorted(arrows[name])]
    return "\n".join([*lines, "```"])


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def _label(name: str) -> str:
    return name.rpartition("/")[2]


def _key(name: str) -> str:
    return name.replace("/", "_")


def descriptions() -> str:
    """For each package, a text that describes what belongs in the package.

    The texts about services come first. The packages of `shared` come last, and each of
    these packages precedes the packages that it imports.
    """
    order = [name for layer in layers(dependencies()) for name in layer]
    shared = [name for name in order if _group(name) == "shared"]
    owners = {_group(name) for name in order} - {"services", "shared"}
    services = sorted({*order, *owners} - {*shared})
    return "\n\n".join(f"**`{name}`**: {description(name)}" for name in services + shared)


def description(name: str) -> str:
    """A package's docstring up to its first example, or a single module's summary line.

    Successive paragraphs become one paragraph; lists remain lists.

    >>> description("shared/modelspec")
    'The layout of a model as a vector: its tensors and their order. This module needs no torch.'
    """
    path = MODULES[".".join((TOP, *name.split("/")))]
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraphs = text.split("\n\n")
    if path.name != "__init__.py":
        paragraphs = paragraphs[:1]
    prose = takewhile(lambda paragraph: not paragraph.startswith((">>>", "Legend")), paragraphs)
    parts = groupby(prose, key=lambda paragraph: paragraph.startswith("- "))
    return "\n\n".join(_joined("\n".join(part)) for _, part in parts)


def _joined(text: str) -> str:
    """The text before the first list item as one line, and each list item as one line."""
    return "\n".join(" ".join(line.split()) for line in re.split(r"\n(?=- )", text))


def render(page: str) -> str:
    """The page with its generated parts updated."""
    for name, text in (("dependencies", picture()), ("packages", descriptions())):
        start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
        assert page.count(start) == page.count(end) == 1, f"{PATH.name} lacks the markers of {name}"
        before, rest = page.split(start)
        page = f"{before}{start}\n{text}\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    PATH.write_text(render(PATH.read_text(encoding="utf-8")), encoding="utf-8")
