"""The variables, commands, paths, metrics and messages that docs/operations.md names exist."""

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from rampart_fl.services.aggregator.metrics import ProcessMetrics
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.attacker.__main__ import AttackerSettings
from rampart_fl.services.attacker.cohort import CohortSettings
from rampart_fl.services.client_agent.__main__ import ClientSettings
from rampart_fl.services.console.app import app
from rampart_fl.services.console.join_tokens import JoinTokenSettings
from tests import other_device
from tests.manual import blocks

SETTINGS = (Settings, ClientSettings, AttackerSettings, CohortSettings, JoinTokenSettings)


@pytest.fixture(scope="module")
def manual(root: Path) -> str:
    """The manual's text."""
    return (root / "docs/operations.md").read_text()


@pytest.fixture(scope="module")
def source(root: Path) -> str:
    """All of our Python code, with the pieces of split string literals joined."""
    paths = [p for top in ("services", "shared") for p in sorted((root / top).rglob("*.py"))]
    text = "\n".join(path.read_text() for path in paths)
    return re.sub(r'"\s*\n\s*f?"', "", text)


@pytest.fixture(scope="module")
def variables(source: str) -> set[str]:
    """Every environment variable that a process or a test reads."""
    fields = {
        f"{kind.model_config['env_prefix']}{name}".upper()
        for kind in SETTINGS
        for name in kind.model_fields
    }
    tests = Path(other_device.__file__).read_text()
    return fields | set(re.findall(r'"(RAMPART_[A-Z_]+)"', source + tests))


def test_every_environment_variable_in_docs_and_deployment_exists(
    root: Path, variables: set[str]
) -> None:
    files = [root / "docker-compose.yml", root / ".env.example", root / "services/Dockerfile"]
    files += [path for path in (root / "k8s").rglob("*") if path.is_file()]
    files += [*(root / "docs").glob("*.md"), *root.glob("*.md"), root / "Makefile"]
    for path in files:
        named = set(re.findall(r"\bRAMPART_[A-Z]+(?:_[A-Z]+)*", path.read_text()))
        assert named <= variables, f"{path.name}: {sorted(named - variables)}"


def test_every_setting_has_a_description() -> None:
    fields = [(kind, name, one) for kind in SETTINGS for name, one in kind.model_fields.items()]
    assert not [(kind.__name__, name) for kind, name, one in fields if not one.description]


def test_documented_commands_and_options_exist(manual: str) -> None:
    commands: Any = typer.main.get_command(app)
    assert isinstance(commands, click.Group) or hasattr(commands, "commands")
    named = re.findall(r"(?:^|`)rampart ([a-z-]+)([^`\n]*)", manual, re.MULTILINE)
    named += re.findall(r"docker compose run --rm console ([a-z-]+)([^`\n]*)", manual)
    assert {"pause", "resume", "evict", "reinstate", "tokens", "status"} <= {n for n, _ in named}
    for name, rest in named:
        command = commands.commands[name]
        for word in rest.split():
            command = getattr(command, "commands", {}).get(word, command)
        options = {o for p in command.params for o in getattr(p, "opts", [])}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options, f"rampart {name}{rest}"


@pytest.mark.slow
def test_every_command_block_is_run_by_a_test_or_marked_untested(manual: str, root: Path) -> None:
    calls = [
        node
        for path in (root / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "manual"
    ]
    run = [ast.literal_eval(call.args[0]) for call in calls]
    assert len(run) >= 14
    for block in blocks():
        following = manual.partition(block)[2].partition("\n```")[0]
        marked = "Tests do not run" in following or re.search(r"^(kubectl|helm) ", block, re.M)
        assert any(words in block for words in run) != bool(marked), block


def test_documented_modules_exist(manual: str) -> None:
    for name in re.findall(r"\brampart_fl\.[\w.]*\w", manual):
        assert importlib.util.find_spec(name) is not None


def test_documented_http_paths_are_served(manual: str, routes: Any) -> None:
    served = routes("api")
    for method, path in re.findall(r"`(GET|PUT|POST|DELETE) (/v1/[^` ]*)`", manual):
        known = {re.sub(r"\{\w+\}", "{id}", p): m for p, m in served.items()}
        plain = re.sub(r"\{\w+\}|(?<=/)[0-9]+", "{id}", path.partition("?")[0])
        assert method.lower() in known[plain], path
    for path in re.findall(r"`(/(?:v1/)?[a-z]+)`", manual):
        assert path in served, path


def test_documented_metrics_are_exported(manual: str) -> None:
    section = manual.partition("## Monitoring")[2].partition("\n## ")[0]
    measured = ProcessMetrics().text().decode()
    named = set(re.findall(r"`(rampart_[a-z_]+)", section))
    assert len(named) >= 6
    for name in named:
        assert re.search(rf"^# TYPE {name}(_total)? ", measured, re.MULTILINE), name


def test_quoted_error_messages_exist_in_the_code(manual: str, source: str) -> None:
    section = manual.partition("## Troubleshooting")[2]
    seen = re.findall(r"^\| (.*?) \| ", section, re.MULTILINE)
    quoted = [text for cell in seen for text in re.findall(r"`([^`]{20,})`", cell)]
    assert len(quoted) >= 7
    for text in quoted:
        pieces = [p.strip(" :.") for p in re.split(r"\.\.\.|: |\b401 \w+", text)]
        for piece in pieces:
            assert piece in source or piece == "join token used", piece


def test_referenced_files_exist(manual: str, root: Path) -> None:
    for name in re.findall(r"`?((?:k8s|services|docs)/[\w./-]+\w)", manual):
        assert (root / name).exists(), name


def test_listed_presets_match_the_values_files(manual: str, root: Path) -> None:
    section = manual.partition("| Preset |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"^\| `([a-z]+)` \|", section, re.MULTILINE))
    assert listed == {path.stem for path in (root / "k8s/values").iterdir()}


def test_documented_volumes_match_the_compose_file(manual: str, root: Path, load: Any) -> None:
    (file,) = load((root / "docker-compose.yml").read_text())
    named = set(re.findall(r"-v (rampart_\w+):", manual))
    assert named == {f"{file['name']}_{volume}" for volume in ("redis", "blobs")}
    assert {"redis", "blobs"} <= file["volumes"].keys()
