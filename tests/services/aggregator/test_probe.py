"""The container's health check, against real sockets."""

import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rampart_fl.services.aggregator import probe
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.console.launcher.processes import free_port


class Answers(BaseHTTPRequestHandler):
    """Answers 200 for /healthz, and 503 for all other paths."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
        """Logs nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        monkeypatch.setenv("RAMPART_PORT", str(listening.server_address[1]))
        monkeypatch.delenv("RAMPART_TLS_CERTIFICATE", raising=False)
        thread = threading.Thread(target=listening.serve_forever, args=[0.01])
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A self-signed certificate for another name, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate with")
    paths = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made = ["-days", "1", "-subj", "/CN=aggregator", "-out", paths[0], "-keyout", paths[1]]
    subprocess.run([openssl, "req", *options, *made], check=True, capture_output=True)
    return paths


def test_default_port_of_the_probe_equals_that_of_the_settings() -> None:
    assert Settings.model_fields["port"].default == probe.PORT


def test_probe_succeeds_on_status_200_and_fails_on_status_503(server: ThreadingHTTPServer) -> None:
    assert probe.ask("/healthz") is None
    refused = probe.ask("/readyz")
    assert refused is not None
    assert "503" in refused


def test_probe_fails_if_no_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMPART_PORT", str(free_port()))
    assert probe.ask("/healthz") is not None


@pytest.mark.processes
def test_probe_command_exits_with_1_and_names_the_path_on_failure(
    server: ThreadingHTTPServer,
) -> None:
    command = [sys.executable, "-m", "rampart_fl.services.aggregator.probe"]
    assert subprocess.run(command, check=False).returncode == 0
    done = subprocess.run([*command, "/readyz"], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "/readyz" in done.stderr


@pytest.mark.processes
def test_probe_does_not_import_pydantic() -> None:
    script = "import rampart_fl.services.aggregator.probe, sys; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.processes
def test_probe_accepts_a_certificate_for_another_host_name(
    server: ThreadingHTTPServer, certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    assert probe.ask("/healthz") is not None
    monkeypatch.setenv("RAMPART_TLS_CERTIFICATE", certificate[0])
    assert probe.ask("/healthz") is None
