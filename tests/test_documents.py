"""README.md and docs/ name commands, options, experiments, files and links that exist."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from rampart_fl.services.console.app import app
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.sweep import Sweep
from rampart_fl.shared.figures.client_metrics import KINDS
from rampart_fl.shared.protocol.messages import TokenChange
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.validation import validate
from tests.conftest import ForgetMembers

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",  # first: tests below take its examples
    *(
        ROOT / f"{name}.md"
        for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG", "benchmarks/README")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
RESULTS = sorted((ROOT / "benchmarks/results").rglob("*.md"))
PLACES = re.compile(
    r"(?<![\w./-])(?:benchmarks|docs|k8s|monitoring|services|shared|src|tests|tools)/[\w./-]++(?![*<{])"
)
"""Matches paths from the repository's root, but not the beginning of a pattern."""
COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
MARK = r"; (?:amended|replaced) by \[(\d+)\]\(0*\1-[\w-]+\.md\)(?:: [^;]+)?"
STATE = re.compile(rf"\d{{4}}-\d\d-\d\d, accepted(?:{MARK})*")
"""Matches the line below a decision's title: the date, and the marks that later decisions made."""
RUN = {"up", "simulate", "certify"}
"""Commands whose argument is an experiment."""


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Path:
    """Every page."""
    path: Path = request.param
    return path


def test_links_point_to_existing_files_and_headings(page: Path) -> None:
    for place, heading in re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", page.read_text()):
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), place
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M) if heading else []
        anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not heading or heading in anchors, f"{place}#{heading}"


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda path: path.stem)
def test_documented_paths_exist(page: Path) -> None:
    text = re.sub(r"```python\n.*?```", "", page.read_text(), flags=re.DOTALL)  # users' own files
    for place in PLACES.findall(text):
        path = ROOT / place.rstrip(".")
        assert path.exists() or path.with_name(f"{path.name}.py").exists(), place


def test_documented_commands_and_options_exist(page: Path) -> None:
    matches = re.findall(r"(?:^|`)rampart ([a-z-]+)([^`#\n]*)", page.read_text(), re.M)
    for name, rest in matches:
        command = COMMANDS[name]
        for word in rest.split():
            command = getattr(command, "commands", {}).get(word, command)
        options = {o for p in command.params for o in getattr(p, "opts", [])}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) <= options, f"rampart {name}{rest}"
        for named in re.findall(r"^ ([a-z][a-z0-9-]+)(?: |$)", rest) if name in RUN else []:
            assert Sweep.load(named) or Experiment.load(named)


def test_documented_modules_scripts_and_make_targets_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"python -m ([\w.]+\w)", text):
        assert importlib.util.find_spec(name) is not None, name
    for name in re.findall(r"python (benchmarks/\w+\.py)", text):
        assert (ROOT / name).exists(), name
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= targets


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = {
        re.split(r"[\[<>=;\s]", line)[0]
        for line in [*project["dependencies"], *(line for extra in extras for line in extra)]
    }
    page = (ROOT / "docs/dependencies.md").read_text()
    rows = re.findall(r"^\| ([\w, -]+?) \|", page, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")} - {"package"}
    assert named == declared


def test_every_version_ceiling_has_a_reason() -> None:
    record = (ROOT / "docs/decisions/0011-version-ceilings.md").read_text()
    recorded = set(re.findall(r"^\| (\w+) \| below ([\d.]+) \|", record, re.MULTILINE))
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert recorded == {match for line in lines for match in re.findall(r"^(\w+).*<([\d.]+)", line)}


def test_every_decision_is_listed_and_complete() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"^\| \[\d+\]\((.*?)\) \|", (folder / "README.md").read_text(), re.M)
    assert listed == sorted(path.name for path in folder.glob("0*.md"))
    for name in listed:
        text = (folder / name).read_text()
        title, state, *_ = text.split("\n\n")
        assert re.fullmatch(r"# \d+\. .+", title), name
        assert STATE.fullmatch(" ".join(state.split())), name
        headings = ["Context", "Decision", "Alternatives", "Price"]
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == headings, name


def test_glossary_is_in_alphabetical_order() -> None:
    page = (ROOT / "docs/glossary.md").read_text()
    tables = re.findall(r"^\|---\|---\|\n((?:\|.*\n?)+)", page, re.MULTILINE)
    assert len(tables) >= 4
    for table in tables:
        terms = re.findall(r"^\| `?(.*?)`? \|", table.replace("κ (kappa)", "kappa"), re.MULTILINE)
        assert terms == sorted(terms, key=str.casefold)


def test_readme_experiment_is_valid() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGES[0].read_text(), re.DOTALL)
    assert validate(Experiment.parse(text)).name == "my-federation"


def test_custom_client_guide_agrees_with_its_experiment_and_model() -> None:
    text = (ROOT / "docs/your-own-client.md").read_text()
    (table,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    experiment = validate(Experiment.parse(table))
    assert f"--slots 0-{experiment.data.clients - 1} " in text
    assert f"tokens --count {experiment.data.clients} " in text
    (written_for,) = re.findall(r"trains\s+the\s+model\s+`(.*?)`", text)
    assert experiment.model == tomllib.loads(f"model = {written_for}")["model"]


def test_custom_client_guide_names_the_metrics_that_figures_use() -> None:
    text = (ROOT / "docs/your-own-client.md").read_text()
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", text[text.index("| metric | meaning |") :]))
    by_kind = {f"{what}_{kind}" for what in ("correct", "error", "fooled") for kind in KINDS}
    votes = {"correct_vote", "fooled_vote"}
    assert {"test_samples", "triggered_samples", "loss_gap", *by_kind, *votes} <= named


def test_pages_show_a_valid_body_for_a_new_token() -> None:
    for page in ("operations", "runbook"):
        text = (ROOT / f"docs/{page}.md").read_text()
        (body,) = re.findall(r'\{"token_hash": .*?\}', text, re.DOTALL)
        sent = re.sub(r"'\$hash'|HASH", "5f" * 32, body)
        assert TokenChange.model_validate_json(sent).reason != NO_REASON


def test_data_set_without_samples_states_their_form() -> None:
    source = (ROOT / "docs/data.md").read_text()
    (code,) = re.findall(r"```python\n(.*?class Patients.*?)```", source, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/data.md", "exec"), names)
    patients = names["Patients"]()
    assert (patients.shape, patients.classes) == ((30,), 3)
    with pytest.raises(RuntimeError, match="own file"):
        patients.load()


def test_readme_rule_is_registered_and_aggregates(forget_members: ForgetMembers) -> None:
    matches = re.findall(
        r"```python\n(\"\"\"shared/robust/rules/.*?)```", PAGES[0].read_text(), re.DOTALL
    )
    forget_members(rules)
    exec(matches[0], {"__name__": "midrange"})
    member = rules.get("midrange")
    assert member.paper and member.breakdown and member.complexity, "the contracts ask for them"
    updates_ND = torch.tensor([[0.0, 3.0], [4.0, 5.0], [1.0, 4.0]])
    assert aggregate(updates_ND, "midrange").tolist() == [2.0, 4.0]


def test_readme_families_are_packages() -> None:
    folders = re.findall(r"`(shared/[\w/]+)/\{([\w,]+)\}`", PAGES[0].read_text())
    assert len(folders) >= 4
    for folder, names in folders:
        for name in names.split(","):
            assert (ROOT / folder / name / "__init__.py").exists()
