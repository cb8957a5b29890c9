"""New connections use a renewed certificate; an unusable certificate changes nothing."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rampart_fl.services.aggregator import certificate

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


def issue(folder: Path, name: str) -> None:
    """Issues a certificate for a name; replaces the key and the certificate, each atomically."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-keyout", folder / "new.key", "-out", folder / "new.crt", "-subj", f"/CN={name}"]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    for kind in ("key", "crt"):
        (folder / f"new.{kind}").replace(folder / f"tls.{kind}")


@pytest.fixture
async def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The port of a TLS server that checks its certificate files every 10 ms."""
    monkeypatch.setattr(certificate, "EVERY", 0.01)
    issue(tmp_path, "first")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = (tmp_path / "tls.crt", tmp_path / "tls.key")
    context.load_cert_chain(*files)
    renewing = asyncio.create_task(certificate.renew(context, *files))
    server = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
    renewing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await renewing


async def presented(port: int, wanted: bytes) -> None:
    """Waits until a new connection gets a certificate that contains these bytes."""
    async with asyncio.timeout(30):
        while wanted not in ssl.PEM_cert_to_DER_cert(
            await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        ):
            await asyncio.sleep(0.02)


async def test_new_connections_see_a_renewed_certificate(port: int, tmp_path: Path) -> None:
    await presented(port, b"first")
    issue(tmp_path, "second")
    await presented(port, b"second")


async def test_unusable_certificate_files_keep_the_old_certificate_in_use(
    port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tls.crt").write_text("not a certificate")
    async with asyncio.timeout(30):
        while "cannot be used" not in caplog.text:
            await asyncio.sleep(0.02)
    await presented(port, b"first")
    (tmp_path / "tls.key").unlink()
    issue(tmp_path, "third")
    await presented(port, b"third")
