"""An object store for tests: a small part of S3's protocol over HTTP, with a log of reads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ENTRY = """<Contents><Key>{}</Key><Size>{}</Size><LastModified>{}</LastModified></Contents>"""
LIST = """<ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>"""


@dataclass
class ObjectServer:
    """The objects by path, and the bytes that were asked for."""

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    written: dict[str, datetime] = field(default_factory=dict)
    reads: list[tuple[str, range]] = field(default_factory=list)
    """For each GET, the object's path and the range of its bytes that were sent."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process finds this server under s3:// URLs."""
        return {
            "AWS_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_REGION": "here",
        }


@contextmanager
def serving() -> Iterator[ObjectServer]:
    """Starts an object server in a thread."""
    server = ObjectServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_PUT(self) -> None:
            server.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            server.written[self.path] = datetime.now(UTC)
            self.answer(200)

        def do_DELETE(self) -> None:
            server.objects.pop(self.path, None)
            self.answer(204)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if "list-type=2" in url.query:
                self.list(f"{url.path}/", parse_qs(url.query).get("prefix", [""])[0])
                return
            data = server.objects.get(self.path)
            if data is None:
                self.answer(404)
                return
            written = {"Last-Modified": format_datetime(server.written[self.path], usegmt=True)}
            sent = range(len(data))
            if asked := self.headers.get("Range"):
                first, last = asked.removeprefix("bytes=").split("-")
                sent = sent[int(first) : int(last) + 1]
                written["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            if self.command == "GET":
                server.reads.append((self.path, sent))
            self.answer(206 if asked else 200, data[sent.start : sent.stop], **written)

        def list(self, bucket: str, prefix: str) -> None:
            entries = [
                ENTRY.format(path.removeprefix(bucket), len(data), server.written[path].isoformat())
                for path, data in list(server.objects.items())
                if path.startswith(bucket + prefix)
            ]
            self.answer(200, LIST.format("".join(entries)).encode())

        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            fixed = {"ETag": '"any"', "Content-Length": str(len(body))}
            for name, value in {**fixed, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
