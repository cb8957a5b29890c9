"""Who may import whom, how long a module may be, and what no file may name."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(("rampart_fl", *path.relative_to(base).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for base, top in ((ROOT, "shared"), (ROOT, "services"), (ROOT / "src/rampart_fl", ""))
    for path in sorted((base / top).rglob("*.py"))
}
LONGEST = 350
"""Lines of a module; a longer one has more than one idea."""
LONGER = dict[str, int]()

SERVICES = ("rampart_fl.services",)
MATHEMATICS = (
    "rampart_fl.shared.robust",
    "rampart_fl.shared.attacks",
    "rampart_fl.shared.learning",
    "rampart_fl.shared.round",
)
OUTSIDE = {
    "httpx",
    "redis",
    "fastapi",
    "starlette",
    "uvicorn",
    "logging",
    "pydantic_settings",
    "rampart_fl.shared.protocol",
    "rampart_fl.shared.agent",
    "rampart_fl.shared.runtime.telemetry",
    "rampart_fl.shared.runtime.process",
}
"""What mathematics may not know of: networks, services, logs, settings."""
EXPERIMENT = {
    "rampart_fl.shared.errors",
    "rampart_fl.shared.experiment",
    "rampart_fl.shared.families",
    "rampart_fl.shared.seeding",
}
"""All of ours that experiment files know of."""
UPWARD = {
    # What cannot run is refused before the first of many experiments runs.
    ("rampart_fl.shared.experiment.sweep", "rampart_fl.shared.validation"),
}
HEAVY = {"torch", "sklearn", "scipy"}
"""What a process of the api role never imports."""


@cache
def imports(module: str) -> tuple[tuple[str, bool], ...]:
    """(imported module, whether at module level) of everything that a module imports."""
    return tuple(_imports(ast.parse(MODULES[module].read_text()), module, True))


def _imports(node: ast.AST, module: str, top: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, top) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module}: imports are absolute"
            assert child.module is not None
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield (inner if inner in MODULES else child.module, top)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, module, top and not inside)


def within(module: str, packages: "set[str] | tuple[str, ...]") -> bool:
    """Whether a module is one of these packages or stands in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def service(module: str) -> str:
    """rampart_fl.services.aggregator of rampart_fl.services.aggregator.api.app."""
    return ".".join(module.split(".")[:3])


def test_a_service_imports_no_other_service() -> None:
    assert not [
        (module, imported)
        for module in MODULES
        for imported, _ in imports(module)
        if within(module, SERVICES) and within(imported, SERVICES)
        if service(imported) not in (service(module), *SERVICES)
    ]


def test_shared_imports_no_service() -> None:
    assert not [
        (module, imported)
        for module in MODULES
        for imported, _ in imports(module)
        if within(module, ("rampart_fl.shared",)) and within(imported, SERVICES)
    ]


def test_mathematics_knows_nothing_of_the_outside() -> None:
    assert not [
        (module, imported)
        for module in MODULES
        for imported, _ in imports(module)
        if within(module, MATHEMATICS) and within(imported, OUTSIDE)
    ]


def test_experiment_files_know_only_what_stands_below_them() -> None:
    upward = {
        (module, imported)
        for module in MODULES
        for imported, _ in imports(module)
        if within(module, ("rampart_fl.shared.experiment",)) and imported in MODULES
        if not within(imported, EXPERIMENT)
    }
    assert upward == UPWARD


def reached(module: str) -> dict[str, str]:
    """Everything that importing a module imports, each with who imports it."""
    found, waiting = {module: ""}, [module]
    while waiting:
        current = waiting.pop()
        if current not in MODULES:
            continue
        parts = current.split(".")
        parents = [".".join(parts[:depth]) for depth in range(1, len(parts))]
        for imported in [*parents, *(name for name, top in imports(current) if top)]:
            if imported not in found:
                found[imported] = current
                waiting.append(imported)
    return found


AGGREGATOR = "rampart_fl.services.aggregator"
CONSOLE = "rampart_fl.services.console"
ROOMS = {
    f"{AGGREGATOR}.api": {"state", "metrics", "settings"},
    f"{AGGREGATOR}.worker": {"state", "settings"},
    f"{AGGREGATOR}.state": set[str](),
    f"{AGGREGATOR}.metrics": set[str](),
    f"{AGGREGATOR}.settings": set[str](),
    f"{AGGREGATOR}.probe": set[str](),
    f"{AGGREGATOR}.server": {"api", "worker", "settings"},
    f"{AGGREGATOR}.__main__": {"server", "settings"},
    f"{CONSOLE}.commands": {"studies", "launcher", "operator", "live"},
    f"{CONSOLE}.studies": {"launcher", "live"},
    f"{CONSOLE}.launcher": {"operator", "live"},
    f"{CONSOLE}.operator": set[str](),
    f"{CONSOLE}.live": set[str](),
    f"{CONSOLE}.testing": {"launcher", "operator"},
    f"{CONSOLE}.join_tokens": {"operator"},
    f"{CONSOLE}.__main__": {"commands"},
}
"""The rooms and modules of a service, each with those that it may import, in functions too."""
ONLY_IN = {
    ("redis", "obstore"): (f"{AGGREGATOR}.state",),
    ("fastapi", "starlette"): (f"{AGGREGATOR}.api",),
    ("uvicorn",): (f"{AGGREGATOR}.api", f"{AGGREGATOR}.server"),
    ("torch",): (f"{AGGREGATOR}.worker", f"{CONSOLE}.studies"),
    ("typer",): (f"{CONSOLE}.commands", f"{CONSOLE}.__main__"),
}
"""Libraries, and the only rooms and modules of these services that import them."""
IN_ROOMS = [module for module in MODULES if within(module, (AGGREGATOR, CONSOLE))]


def test_a_room_imports_only_the_rooms_below_it() -> None:
    for room, below in ROOMS.items():
        allowed = (room, *(f"{service(room)}.{name}" for name in below))
        members = [module for module in IN_ROOMS if within(module, (room,))]
        assert members, f"{room} is gone"
        assert not [
            (module, imported)
            for module in members
            for imported, _ in imports(module)
            if within(imported, (service(room),)) and not within(imported, allowed)
        ]


def test_every_module_has_a_room() -> None:
    homeless = [module for module in IN_ROOMS if not within(module, tuple(ROOMS))]
    assert homeless == [AGGREGATOR, CONSOLE]
    assert not imports(AGGREGATOR) and not imports(CONSOLE)


@pytest.mark.parametrize("libraries", ONLY_IN, ids=" ".join)
def test_a_library_stays_in_its_rooms(libraries: tuple[str, ...]) -> None:
    users = {
        module
        for module in IN_ROOMS
        for imported, _ in imports(module)
        if within(imported, libraries)
    }
    assert users
    assert not [module for module in users if not within(module, ONLY_IN[libraries])]


@pytest.mark.parametrize("room", ["api", "state", "metrics", "settings", "server"])
def test_the_api_role_reaches_no_torch(room: str) -> None:
    for module in (m for m in IN_ROOMS if within(m, (f"{AGGREGATOR}.{room}",))):
        heavy = {name: by for name, by in reached(module).items() if within(name, HEAVY)}
        assert not heavy, module


def test_the_walk_finds_what_it_looks_for() -> None:
    assert "torch" in reached("rampart_fl.services.aggregator.worker.worker")
    assert len(MODULES) > 100


def cycles(imported: Mapping[str, Collection[str]]) -> list[frozenset[str]]:
    """Sets of nodes that all reach each other, of a graph given by its edges."""
    reach: dict[str, set[str]] = {}
    for start in imported:
        found, waiting = set[str](), [start]
        while waiting:
            new = set(imported[waiting.pop()]) - found
            found |= new
            waiting += new
        reach[start] = found
    sets = {
        frozenset(node for node in reach[start] if start in reach[node])
        for start in imported
        if start in reach[start]
    }
    return sorted(sets, key=sorted)


def test_no_modules_import_each_other_in_a_circle() -> None:
    ours = {
        module: {name for name, _ in imports(module) if name in MODULES and name != module}
        for module in MODULES
    }
    assert not [sorted(cycle) for cycle in cycles(ours)]


def test_circles_are_found() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b"], "d": ["e"], "e": ["f"], "f": ["d", "a"]}
    assert cycles(graph) == [frozenset("bc"), frozenset("def")]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_modules_are_short() -> None:
    lengths = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    assert not {m: n for m, n in lengths.items() if n > LONGER.get(m, LONGEST)}


def test_every_module_says_what_it_is() -> None:
    sources = {module: path.read_text() for module, path in MODULES.items()}
    assert not [m for m, text in sources.items() if text and not ast.get_docstring(ast.parse(text))]


FORBIDDEN = re.compile(r"file://|/(?:home|Users|root|work)/[a-z]")


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    kinds = {".py", ".toml", ".md", ".yml", ".yaml", ".c", ".sh"}
    ours = [entry for entry in ROOT.iterdir() if not entry.name.startswith(".")]
    for path in (path for entry in ours for path in (entry, *entry.rglob("*"))):
        if path.suffix in kinds and path.is_file() and path != Path(__file__):
            assert not FORBIDDEN.search(path.read_text()), path


SILENCED = re.compile(r"# *(?:noqa|type: ignore)")
WITH_A_REASON = re.compile(r"# noqa: [A-Z0-9, ]+ - \w|# type: ignore\[[a-z, -]+\]  # \w")


def test_a_line_that_silences_a_checker_says_why() -> None:
    tops = ("shared", "services", "src", "tools", "tests", "benchmarks")
    for path in (path for top in tops for path in (ROOT / top).rglob("*.py")):
        lines = [line for line in path.read_text().splitlines() if SILENCED.search(line)]
        bare = [line for line in lines if not WITH_A_REASON.search(line)]
        assert path == Path(__file__) or not bare, f"{path}: {bare}"
