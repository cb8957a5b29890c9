"""Which URL and which token the commands use; no server gets a token of another federation."""

import contextlib
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.connection.saved_federation import SavedFederation, save
from rampart_fl.shared.errors import Unavailable

Rampart = Callable[..., Any]
SAVED, GIVEN = "s" * 20, "g" * 20


class Server:
    """An HTTP server that answers every request in the same way, and keeps the tokens it got."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"[]"
        self.tokens: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.tokens.append(self.headers["Authorization"].removeprefix("Bearer "))
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            def log_message(self, *_: object) -> None:
                """Keeps standard error for the command."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server; the current folder is empty, and no variable names a URL or a token."""
    monkeypatch.chdir(tmp_path)
    for variable in ("RAMPART_AGGREGATOR", "RAMPART_OPERATOR_TOKEN", "RAMPART_FEDERATION"):
        monkeypatch.delenv(variable, raising=False)
    server = Server()
    thread = Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


def saved(folder: str, url: str) -> None:
    """Saves a federation in this folder."""
    Path(folder).mkdir(parents=True)
    save(Path(folder), SavedFederation(url, SAVED))


def test_saved_token_goes_only_to_the_saved_url(server: Server, rampart: Rampart) -> None:
    saved("runs/federation", "http://127.0.0.1:1")
    said = rampart("runs", "--url", server.url)
    assert (said.code, f"give --token for {server.url}" in said.err) == (2, True)
    assert not server.tokens
    assert rampart("runs", "--url", server.url, "--token", GIVEN).code == 0
    saved("runs/other", server.url)
    for url in (server.url, f"{server.url}/"):
        assert rampart("runs", "--url", url).code == 0
    assert server.tokens == [GIVEN, SAVED, SAVED]


def test_given_token_goes_to_a_saved_url_only_on_this_machine(
    server: Server, rampart: Rampart
) -> None:
    saved("runs/federation", server.url)
    assert rampart("runs", "--token", GIVEN).code == 0
    assert server.tokens == [GIVEN]
    saved("runs/other", "http://aggregator.example")
    Path("runs/federation/console.json").unlink()
    said = rampart("runs", "--token", GIVEN)
    assert (said.code, "give --url for the token" in said.err) == (2, True)


@pytest.mark.parametrize("option", ["--url", "--token"])
def test_empty_options_are_refused(server: Server, rampart: Rampart, option: str) -> None:
    saved("runs/federation", server.url)
    said = rampart("runs", option, "")
    assert (said.code, f"{option} is empty" in said.err) == (2, True)
    assert not server.tokens


def test_damaged_file_does_not_disable_the_console(server: Server, rampart: Rampart) -> None:
    saved("runs/federation", server.url)
    Path("runs/crashed").mkdir()
    Path("runs/crashed/console.json").touch()
    said = rampart("runs", "--json")
    assert (said.code, json.loads(said.out)) == (0, [])
    assert said.err.startswith("warning: ignored runs/crashed/console.json")


def test_variable_names_the_folder_of_a_federation(
    server: Server, rampart: Rampart, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("runs/federation", "http://127.0.0.1:1")
    saved("elsewhere/fed", server.url)
    monkeypatch.setenv("RAMPART_FEDERATION", "elsewhere/fed")
    assert rampart("runs").code == 0
    assert server.tokens == [SAVED]
    Path("elsewhere/fed/console.json").unlink()
    said = rampart("runs")
    assert (said.code, "no federation in elsewhere/fed" in said.err) == (2, True)
    monkeypatch.delenv("RAMPART_FEDERATION")
    Path("runs/federation/console.json").unlink()
    assert "set RAMPART_FEDERATION to the folder" in rampart("runs").err


def test_refused_token_is_explained(server: Server, rampart: Rampart) -> None:
    body = {"type": "urn:rampart:unauthorized", "detail": "unknown token"}
    server.status, server.body = 401, json.dumps(body).encode()
    said = rampart("runs", "--url", server.url, "--token", GIVEN)
    assert (said.code, len(said.err.splitlines())) == (1, 1)
    assert "Each `rampart serve` makes a new token: unset RAMPART_OPERATOR_TOKEN" in said.err


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"<!DOCTYPE HTML>\n<html>\n<head>\n</head>\n</html>", "404 Not Found"),
        (404, b'{"detail": "Not Found"}', "Not Found"),
        (401, b"", "401 Unauthorized"),
        (403, b"go\naway\n", "403 go away"),
        (200, b"<html>\n", "200 '<html>\\n'"),
    ],
)
def test_server_that_is_no_aggregator_is_reported_in_one_line(
    server: Server, rampart: Rampart, status: int, body: bytes, reason: str
) -> None:
    server.status, server.body = status, body
    said = rampart("runs", "--url", server.url, "--token", GIVEN)
    what = f"the server at {server.url!r} does not seem to be an aggregator: GET /v1/runs: {reason}"
    assert (said.code, said.err) == (1, f"error: {what}\n")


def test_failure_of_a_proxy_is_reported_in_one_line(server: Server) -> None:
    server.status, server.body = 502, b"<html>\n<h1>nginx</h1>\n</html>"
    operator = Operator(server.url, GIVEN, patience=0.01)
    with contextlib.closing(operator), pytest.raises(Unavailable, match=r"502 Bad Gateway$"):
        operator.runs()
