"""Settings: unsafe values are refused, and secrets stay secret."""

from typing import Any

import pytest
from pydantic import ValidationError

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.runtime.process import read_settings

TOKEN = "operators-own-token"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"operator_token": ""},
        {"operator_token": "fifteen-letters"},
        {"operator_token": "change-me-please-now"},
        {"operator_token": f"{TOKEN}\n"},
        {"operator_token": "operator-token-here"},
        {"operator_token": TOKEN, "tls_certificate": "cert.pem"},
        {"operator_token": TOKEN, "tls_key": "key.pem"},
        {"operator_token": TOKEN, "redis_url": "http://127.0.0.1:6379"},
        {"operator_token": TOKEN, "redis_url": "127.0.0.1:6379"},
        {"operator_token": TOKEN, "namespace": "a{b}"},
        {"operator_token": TOKEN, "device": "gpu"},
        {"operator_token": TOKEN, "port": 70_000},
        {"operator_token": TOKEN, "lease": 0.1},
        {"operator_token": TOKEN, "pool_memory": "2.147483648e+09"},
        {"operator_token": TOKEN, "disk_quota": "2e9"},
        {"operator_token": TOKEN, "role": "boss"},
        {"operator_token": TOKEN, "threads": 0},
        {"operator_token": TOKEN, "body_idle": 0},
        {"operator_token": TOKEN, "poll": 120},
        {"operator_token": TOKEN, "offline_after": 30, "poll": 30},
        {"operator_token": TOKEN, "offline_after": 0},
        {"operator_token": TOKEN, "predictable_draws": True, "host": "0.0.0.0"},
        {"operator_token": TOKEN, "predictable_draws": True, "redis_url": "redis://redis.prod"},
    ],
)
def test_unsafe_settings_are_refused(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAMPART_OPERATOR_TOKEN", raising=False)
    with pytest.raises(ValidationError):
        Settings(**wrong)


@pytest.mark.parametrize(("poll", "offline_after"), [(60, 60), (300, 120), (60, 5.5)])
def test_a_waiting_client_never_counts_as_offline(poll: float, offline_after: float) -> None:
    given = {"operator_token": TOKEN, "offline_after": offline_after}
    message = (
        rf"RAMPART_POLL \({poll}\) must be less than RAMPART_OFFLINE_AFTER \({offline_after}\)"
    )
    with pytest.raises(ValidationError, match=message):
        Settings(**given, poll=poll)
    assert Settings(**given, poll=offline_after - 0.5).offline_after == offline_after


@pytest.mark.parametrize(("offline_after", "poll"), [(5.5, 2.75), (60, 30), (120, 60), (600, 60)])
def test_an_unset_poll_adapts_to_the_time_after_which_clients_are_offline(
    offline_after: float, poll: float
) -> None:
    assert Settings(operator_token=TOKEN, offline_after=offline_after).poll == poll


def test_settings_are_read_from_the_environment_and_hide_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAMPART_OPERATOR_TOKEN", TOKEN)
    monkeypatch.setenv("RAMPART_REDIS_PASSWORD", "a-password")
    monkeypatch.setenv("RAMPART_DEVICE", "cuda:1")
    settings = Settings()
    assert settings.device == "cuda:1"
    assert settings.operator_token.get_secret_value() == TOKEN
    assert TOKEN not in repr(settings)
    assert "a-password" not in repr(settings)


def test_only_a_worker_may_run_as_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Settings(operator_token=TOKEN).threads
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValidationError, match="torchrun started 2 processes"):
        Settings(operator_token=TOKEN)
    assert Settings(operator_token=TOKEN, role="worker").threads == max(1, one // 2)


@pytest.mark.parametrize("size", ["2147483648", 2147483648, "2GiB", " 2 GiB "])
def test_sizes_are_bytes_or_have_a_unit(size: Any) -> None:
    assert Settings(operator_token=TOKEN, pool_memory=size).pool_memory == 2 << 30


def test_help_names_every_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["aggregator", "--help"])
    with pytest.raises(SystemExit):
        read_settings("aggregator", Settings)
    shown = capsys.readouterr().out
    assert "share_of_processors" in shown and "half_of_offline_after" in shown
    assert "lambda" not in shown
