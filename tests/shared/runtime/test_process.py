"""How services start: flags override variables, and variables override the secrets folder."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr, model_validator

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.process import (
    SECRETS,
    ServiceSettings,
    read_settings,
    run_service,
    secret,
    secrets_folder,
)


class Example(ServiceSettings):
    """Two settings, and what is logged."""

    token: SecretStr
    """What is shown."""
    port: int = 1


@pytest.fixture(autouse=True)
def no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["example"])
    monkeypatch.delenv(SECRETS, raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rampart_token").write_text("from the folder\n")
    monkeypatch.setenv(SECRETS, str(tmp_path))
    return tmp_path


async def nothing(settings: Example) -> None:
    """Does nothing."""


def test_a_secret_is_read_from_its_file_without_the_newline(folder: Path) -> None:
    assert read_settings("example", Example).token.get_secret_value() == "from the folder"
    assert secret("RAMPART_TOKEN") == "from the folder"
    assert secret("RAMPART_OTHER") is None


def test_flags_override_variables_and_variables_override_secret_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMPART_TOKEN", "from the variable")
    assert read_settings("example", Example).token.get_secret_value() == "from the variable"
    assert secret("RAMPART_TOKEN") == "from the variable"
    monkeypatch.setattr("sys.argv", ["example", "--token", "from the flag"])
    assert read_settings("example", Example).token.get_secret_value() == "from the flag"


def test_secrets_folder_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    assert secrets_folder() is None
    assert secret("RAMPART_TOKEN") is None
    monkeypatch.setenv("RAMPART_TOKEN", "from the variable")
    assert read_settings("example", Example).port == 1


def test_missing_secrets_folder_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SECRETS, str(tmp_path / "away"))
    with pytest.raises(ConfigurationError, match=r"RAMPART_SECRETS names .*away"):
        secrets_folder()
    assert run_service("example", Example, nothing) == 2
    assert "RAMPART_SECRETS" in capsys.readouterr().err


def test_a_missing_setting_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_service("example", Example, nothing) == 2
    assert capsys.readouterr().err == "error: RAMPART_TOKEN: Field required\n"


def test_invalid_settings_are_reported_by_variable_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Bounded(Example):
        groups: dict[str, int] = Field(default={})

        @model_validator(mode="after")
        def _safe(self) -> "Bounded":
            if self.port == 7:
                raise ValueError("RAMPART_PORT must not be 7")
            return self

    monkeypatch.setenv("RAMPART_TOKEN", "t")
    monkeypatch.setattr("sys.argv", ["example", "--port", "x", "--groups", '{"a": "b"}'])
    assert run_service("example", Bounded, nothing) == 2
    output = capsys.readouterr().err
    assert "RAMPART_PORT: Input should be a valid integer" in output
    assert "RAMPART_GROUPS.a: Input should be a valid integer" in output
    monkeypatch.setattr("sys.argv", ["example", "--port", "7"])
    assert run_service("example", Bounded, nothing) == 2
    assert capsys.readouterr().err == "error: RAMPART_PORT must not be 7\n"


def test_help_explains_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["example", "--help"])
    with pytest.raises(SystemExit) as ended:
        read_settings("example", Example)
    output = capsys.readouterr().out
    assert ended.value.code == 0
    assert "Two settings, and what is logged." in output and "What is shown." in output
