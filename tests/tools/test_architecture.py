"""The page on the architecture matches the code."""

import importlib
import re
from pathlib import Path

import pytest

from tools.architecture import (
    PATH,
    dependencies,
    description,
    layers,
    picture,
    render,
    transitive_reduction,
)
from tools.imports import ROOT, reach

TEXT = PATH.read_text(encoding="utf-8")
TOPS = ("shared", "services", "src", "tools", "tests", "benchmarks", "docs")
TEXTS = {
    path: path.read_text(encoding="utf-8")
    for top in TOPS
    for path in (ROOT / top, *sorted((ROOT / top).rglob("*")))
    if path.suffix in {".py", ".md"} and path != Path(__file__)
} | {path: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md")}
"""The code and the pages."""
DOTTED = re.compile(r"`(rampart_fl\.[\w.]*\w)`")
WITHOUT_ROOT = re.compile(r"`(?:shared|services)\.\w")
NAMES = sorted({name for text in TEXTS.values() for name in re.findall(DOTTED, text)})
GROUPS = {
    group for text in TEXTS.values() for group in re.findall(r'group="(rampart_fl\.\w+)"', text)
}
"""Names of groups of entry points, which cannot be imported."""
MOST_NODES = 40
"""A picture with more boxes than this is illegible."""


@pytest.mark.slow
def test_the_committed_page_is_up_to_date() -> None:
    assert render(TEXT) == TEXT, (
        "run `python -m tools.architecture` and commit docs/architecture.md"
    )


def test_rendering_restores_stale_generated_parts() -> None:
    stale = TEXT.replace("  shared_families --> shared_errors\n", "").replace("**: The ", "**: A ")
    assert stale.count("\n") == TEXT.count("\n") - 1
    assert render(stale) == TEXT


def test_description_keeps_lists_and_joins_other_paragraphs() -> None:
    before, items, after = description("shared/round").split("\n\n")
    assert before.endswith("into a result.") and after.endswith("belong in `robust`.")
    assert re.findall(r"^- `(\w+)`: .*\.$", items, re.MULTILINE) == [
        "calibration",
        "pool",
        "rounds",
    ]
    assert description("services/console/studies").count("\n") == 0, "two paragraphs, but no list"


@pytest.mark.parametrize("name", NAMES)
def test_every_dotted_name_in_code_and_pages_exists(name: str) -> None:
    if name in GROUPS:
        return
    parts = name.split(".")
    depth = next(d for d in range(len(parts), 0, -1) if _is_module(".".join(parts[:d])))
    value = importlib.import_module(".".join(parts[:depth]))
    for attribute in parts[depth:]:
        value = getattr(value, attribute)


def test_every_dotted_name_begins_with_the_import_root() -> None:
    assert not [path for path, text in TEXTS.items() if WITHOUT_ROOT.search(text)]
    assert WITHOUT_ROOT.search("see `shared.robust.evidence.betting`")


def test_names_are_read_from_code_and_from_pages() -> None:
    assert len(set(re.findall(DOTTED, TEXT))) > 20
    assert "rampart_fl.shared.robust.evidence.betting" in NAMES, "in a docstring only"
    assert len(GROUPS & set(NAMES)) > 5, "in docs/your-own-algorithms.md"


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # Its parent is a module, not a package.
        return False


def test_update_path_names_code_in_every_part_of_the_system() -> None:
    way = TEXT.partition("## The path of an update")[2].partition("\n## ")[0]
    steps = re.split(r"^\d+\. ", way, flags=re.MULTILINE)[1:]
    assert len(steps) > 10
    for step in steps:
        assert re.search(r"`rampart_fl\.(?:shared|services)\.", step), step
    for part in ("shared.agent", *(f"services.aggregator.{p}" for p in ("api", "state", "worker"))):
        assert f"`rampart_fl.{part}." in way


def test_the_picture_shows_every_dependency_and_fits_on_a_page() -> None:
    graph = dependencies()
    boxes = re.findall(r"^    (\w+)\[", picture(), re.MULTILINE)
    assert sorted(boxes) == sorted(name.replace("/", "_") for name in graph)
    assert len(boxes) < MOST_NODES
    arrows = transitive_reduction(graph)
    for name, imported in graph.items():
        assert reach(arrows, name) == reach(graph, name) >= imported


def test_each_layer_imports_only_layers_below_it() -> None:
    graph, below = dependencies(), set[str]()
    for layer in reversed(layers(graph)):
        assert all(graph[name] <= below for name in layer)
        below |= set(layer)
    assert below == graph.keys()
    assert "shared/errors" in layers(graph)[-1]


def test_layering_rejects_import_cycles() -> None:
    with pytest.raises(AssertionError, match="import each other"):
        layers({"a": {"b"}, "b": {"a"}})
