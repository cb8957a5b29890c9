"""Which modules may import which, how long modules may be, and what no file may contain."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.imports import (
    MODULES,
    ROOT,
    cycles,
    imports,
    imports_of_ours,
    loaded_modules,
    service,
    within,
)

LONGEST = 350
"""Maximum lines of a module; a longer module serves more than one purpose."""

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
"""What mathematical packages may not import: networks, services, logs, settings."""
EXPERIMENT = {
    "rampart_fl.shared.errors",
    "rampart_fl.shared.experiment",
    "rampart_fl.shared.families",
    "rampart_fl.shared.rounding",
    "rampart_fl.shared.seeding",
}
"""The only modules of ours that experiment files may import."""
HEAVY = {"torch", "sklearn", "scipy"}
"""What a process of the api role never imports."""


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


def test_mathematics_imports_no_network_service_logging_or_settings_modules() -> None:
    assert not [
        (module, imported)
        for module in MODULES
        for imported, _ in imports(module)
        if within(module, MATHEMATICS) and within(imported, OUTSIDE)
    ]


def test_experiment_package_imports_only_packages_below_it() -> None:
    assert not [
        (module, imported)
        for module in MODULES
        for imported, _ in imports(module)
        if within(module, ("rampart_fl.shared.experiment",)) and imported in MODULES
        if not within(imported, EXPERIMENT)
    ]


AGGREGATOR = "rampart_fl.services.aggregator"
CONSOLE = "rampart_fl.services.console"
ROOMS = {
    f"{AGGREGATOR}.api": {"state", "metrics", "settings"},
    f"{AGGREGATOR}.worker": {"state", "settings"},
    f"{AGGREGATOR}.state": set[str](),
    f"{AGGREGATOR}.metrics": set[str](),
    f"{AGGREGATOR}.settings": set[str](),
    f"{AGGREGATOR}.probe": set[str](),
    f"{AGGREGATOR}.certificate": set[str](),
    f"{AGGREGATOR}.server": {"api", "worker", "settings", "certificate"},
    f"{AGGREGATOR}.__main__": {"server", "settings"},
    f"{CONSOLE}.commands": {
        *("studies", "reports", "html_report", "tracking", "stored_run", "launcher"),
        *("connection", "display", "downloads", "folder_lock"),
    },
    f"{CONSOLE}.html_report": {"studies", "stored_run", "display"},
    f"{CONSOLE}.tracking": {"stored_run", "display", "reports", "connection"},
    f"{CONSOLE}.stored_run": {"display"},
    f"{CONSOLE}.studies": {"launcher", "connection", "display"},
    f"{CONSOLE}.reports": {"connection", "display"},
    f"{CONSOLE}.launcher": {"connection", "display", "downloads", "folder_lock"},
    f"{CONSOLE}.downloads": {"display"},
    f"{CONSOLE}.connection": set[str](),
    f"{CONSOLE}.display": set[str](),
    f"{CONSOLE}.folder_lock": set[str](),
    f"{CONSOLE}.testing": {"launcher", "connection"},
    f"{CONSOLE}.join_tokens": {"connection"},
    f"{CONSOLE}.app": {"commands"},
    f"{CONSOLE}.__main__": {"app"},
}
"""Subpackages and modules ("rooms") of a service, each with those that it may import."""
ONLY_IN = {
    ("redis", "obstore"): (f"{AGGREGATOR}.state",),
    ("fastapi", "starlette"): (f"{AGGREGATOR}.api",),
    ("uvicorn",): (f"{AGGREGATOR}.api", f"{AGGREGATOR}.server"),
    ("torch",): (f"{AGGREGATOR}.worker", f"{CONSOLE}.studies", f"{CONSOLE}.tracking"),
    ("mlflow",): (f"{CONSOLE}.tracking",),
    ("ray",): (f"{CONSOLE}.studies",),
    ("typer",): (f"{CONSOLE}.commands", f"{CONSOLE}.app"),
}
"""Libraries, and the only subpackages and modules of these services that import them."""
IN_ROOMS = [module for module in MODULES if within(module, (AGGREGATOR, CONSOLE))]


def test_service_subpackages_import_only_their_allowed_siblings() -> None:
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


def test_import_table_covers_every_module_of_a_service() -> None:
    homeless = [module for module in IN_ROOMS if not within(module, tuple(ROOMS))]
    assert homeless == [AGGREGATOR, CONSOLE]
    assert not imports(AGGREGATOR) and not imports(CONSOLE)


@pytest.mark.parametrize("libraries", ONLY_IN, ids=" ".join)
def test_libraries_are_imported_only_where_allowed(libraries: tuple[str, ...]) -> None:
    users = {
        module
        for module in IN_ROOMS
        for imported, _ in imports(module)
        if within(imported, libraries)
    }
    assert users
    assert not [module for module in users if not within(module, ONLY_IN[libraries])]


@pytest.mark.parametrize(
    "room",
    [
        *(f"{AGGREGATOR}.{room}" for room in ("api", "state", "metrics", "settings", "server")),
        "rampart_fl.shared.experiment",
        "rampart_fl.shared.protocol",
    ],
)
def test_api_role_experiments_and_messages_import_no_torch_sklearn_or_scipy(room: str) -> None:
    modules = [module for module in MODULES if within(module, (room,))]
    assert modules
    for module in modules:
        heavy = {name: by for name, by in loaded_modules(module).items() if within(name, HEAVY)}
        assert not heavy, module


def test_import_walk_finds_loaded_and_type_checking_imports() -> None:
    assert "torch" in loaded_modules("rampart_fl.services.aggregator.worker.worker")
    for_type_checking_only = ("rampart_fl.shared.modelspec", False)
    assert for_type_checking_only in imports("rampart_fl.shared.built_experiment")
    assert len(MODULES) > 100


def test_modules_have_no_import_cycles() -> None:
    ours = {module: imports_of_ours(module) for module in MODULES}
    assert not [sorted(cycle) for cycle in cycles(ours)]


def test_import_cycles_are_detected() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b"], "d": ["e"], "e": ["f"], "f": ["d", "a"]}
    assert cycles(graph) == [frozenset("bc"), frozenset("def")]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_modules_are_short() -> None:
    lengths = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    assert not {m: n for m, n in lengths.items() if n > LONGEST}


def test_every_module_has_a_docstring() -> None:
    sources = {module: path.read_text() for module, path in MODULES.items()}
    assert not [m for m, text in sources.items() if text and not ast.get_docstring(ast.parse(text))]


def test_text_files_are_read_and_written_in_utf_8() -> None:
    """Without `encoding`, Python 3.14 and older use the encoding of the locale."""
    calls = [
        (module, node)
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in {"read_text", "write_text"}
    ]
    assert len(calls) > 10
    for module, call in calls:
        stated = any(keyword.arg == "encoding" for keyword in call.keywords)
        assert stated or "/proc/" in ast.unparse(call), f"{module}: {ast.unparse(call)}"


FORBIDDEN = re.compile(r"file://|/(?:home|Users|root|work)/[a-z]")


IGNORED = {"runs", "secrets", "build", "node_modules"}
"""Folders with files that programs wrote."""
KINDS = {".py", ".toml", ".md", ".yml", ".yaml", ".c", ".sh"}


def our_files(kinds: set[str]) -> Iterator[Path]:
    """The project's files with these suffixes."""
    ours = [entry for entry in ROOT.iterdir() if not entry.name.startswith(".")]
    for path in (path for entry in ours for path in (entry, *entry.rglob("*"))):
        if (
            path.suffix in kinds
            and path.is_file()
            and not IGNORED.intersection(path.relative_to(ROOT).parts)
        ):
            yield path


def test_no_file_contains_a_local_path() -> None:
    for path in our_files(KINDS):
        if path != Path(__file__):
            assert not FORBIDDEN.search(path.read_text()), path


def test_text_files_end_with_exactly_one_newline() -> None:
    """Libraries in `vendor` are left out, because they are as their authors published them."""
    for path in our_files({*KINDS, ".css", ".html", ".js", ".json", ".txt"}):
        text = path.read_bytes()
        ends = text.endswith(b"\n") and not text.endswith(b"\n\n")
        assert ends or not text or "vendor" in path.parts, path


SILENCED = re.compile(r"# *(?:noqa|type: ignore)")
WITH_A_REASON = re.compile(r"# noqa: [A-Z0-9, ]+ - \w|# type: ignore\[[a-z, -]+\]  # \w")


def test_suppressed_checks_state_a_reason() -> None:
    tops = ("shared", "services", "src", "tools", "tests", "benchmarks")
    for path in (path for top in tops for path in (ROOT / top).rglob("*.py")):
        lines = [line for line in path.read_text().splitlines() if SILENCED.search(line)]
        bare = [line for line in lines if not WITH_A_REASON.search(line)]
        assert path == Path(__file__) or not bare, f"{path}: {bare}"
