"""Data sets from OpenML: fetched once, checked, rejected with the reason; no network."""

import gzip
import hashlib
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.datasets import datasets, openml
from rampart_fl.shared.learning.data.datasets.files import FileDataset, channels_first
from rampart_fl.shared.learning.data.datasets.openml import RowsArrived

ON_OPENML = [n for n in datasets.names() if getattr(datasets.get(n), "openml", 0)]
TABLE = openml.table
"""The real function; the fixture `folders` replaces it."""


@pytest.fixture
def answers(folders: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Makes OpenML answer with a table; returns the list of the requested data sets."""

    def answer(x: np.ndarray, y: np.ndarray) -> list[int]:
        requested = []

        def table(data_id: int, arrived: RowsArrived) -> tuple[np.ndarray, np.ndarray]:
            requested.append(data_id)
            return x, y

        monkeypatch.setattr(openml, "table", table)
        return requested

    return answer


def small(monkeypatch: pytest.MonkeyPatch, name: str, total: int, train: int) -> FileDataset:
    """A data set that counts as complete with a few samples."""
    member = datasets.build(name)
    assert isinstance(member, FileDataset)
    monkeypatch.setattr(type(member), "total", total)
    monkeypatch.setattr(type(member), "train", train)
    return member


def test_data_sets_have_the_published_ids_sizes_and_splits() -> None:
    # Data sets by their published sizes: (OpenML's number, rows, training rows).
    known = {n: datasets.get(n) for n in ON_OPENML}
    assert {n: (c.openml, c.total, c.train) for n, c in known.items()} == {
        "mnist": (554, 70_000, 60_000),
        "fashion_mnist": (40996, 70_000, 60_000),
        "cifar10": (40927, 60_000, 50_000),
        "cifar100": (41983, 60_000, 50_000),
        "svhn": (41081, 99_289, 73_257),
        "usps": (41082, 9_298, 7_291),
        "phishing": (4534, 11_055, 8_844),
    }


def test_data_set_is_fetched_once_and_then_cached(
    answers: Callable[..., list[int]], folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = small(monkeypatch, "mnist", 30, 20)
    x = np.random.default_rng(1).integers(0, 256, (30, 784)).astype(float)
    requested = answers(x, np.arange(30) % 10)
    first, again = member.load(), member.load()
    assert requested == [554]
    assert first.x.equal(again.x)
    assert first.take().flatten(1).numpy() == pytest.approx(x / 255)
    assert first.y.tolist() == [i % 10 for i in range(30)]
    with np.load(folders.cache / "mnist.npz") as archive:
        assert archive["x_train"].shape == (20, 28, 28)
        assert archive["x_train"].dtype == np.uint8
    assert len(list(folders.cache.iterdir())) == 1
    assert member.source().kind == "cache"


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((29, 784)), np.zeros(29, dtype=int), "29 samples, not 30"),
        (np.zeros((30, 100)), np.zeros(30, dtype=int), "cannot reshape"),
        (np.zeros((30, 784)), np.arange(30), r"outside 0\.\.9"),
    ],
)
def test_invalid_tables_are_rejected_and_not_cached(
    x: np.ndarray,
    y: np.ndarray,
    message: str,
    answers: Callable[..., list[int]],
    folders: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = small(monkeypatch, "mnist", 30, 20)
    answers(x, y)
    with pytest.raises(ConfigurationError, match=message) as caught:
        member.load()
    assert "put mnist.npz" in str(caught.value)
    assert not folders.cache.exists()


def test_usps_pixels_and_labels_are_converted_to_the_common_ranges(
    answers: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = small(monkeypatch, "usps", 3, 2)
    answers(np.repeat([[-1.0], [0.0], [1.0]], 256, 1), np.array([1, 10, 2]))
    samples = member.load()
    assert samples.take()[:, 0, 0, 0].tolist() == pytest.approx([0, 128 / 255, 1])
    assert samples.y.tolist() == [0, 9, 1]


@pytest.mark.parametrize("last", [True, False])
def test_colour_images_are_read_with_channels_first_or_last(
    last: bool, answers: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = small(monkeypatch, "svhn", 4, 2)
    draws = np.random.default_rng(2)
    colours = draws.integers(0, 200, (4, 3, 1, 1))
    images = colours + np.arange(32)[:, None] + draws.integers(0, 5, (4, 3, 32, 32))
    table = (images.transpose(0, 2, 3, 1) if last else images).reshape(4, -1).astype(float)
    answers(table, np.array([1, 10, 3, 9]))
    samples = member.load()
    assert samples.take().numpy() == pytest.approx(images / 255)
    assert samples.y.tolist() == [1, 0, 3, 9]
    assert channels_first(table.astype(np.uint8), 3, 32, 32).flags.c_contiguous


def test_phishing_features_are_one_hot_encoded(
    answers: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 22 features with two values and 8 with three: 68 columns.
    x = np.array([[(-1, 1)[i % 2]] * 22 + [(-1, 0, 1)[i % 3]] * 8 for i in range(10)], dtype=float)
    member = small(monkeypatch, "phishing", 10, 8)
    answers(x, np.array([-1, 1] * 5))
    samples = member.load()
    order = [0, 1, 2, 3, 5, 6, 7, 8, 4, 9]  # every fifth for testing
    assert samples.y.tolist() == [i % 2 for i in order]
    assert samples.x.shape == (10, 68)
    assert (samples.x.sum(1) == 30).all()
    assert samples.x[1].tolist() == [0, 1] * 22 + [0, 1, 0] * 8


def test_phishing_table_with_a_wrong_feature_count_is_rejected(
    answers: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = small(monkeypatch, "phishing", 10, 8)
    answers(np.ones((10, 30)), np.ones(10, dtype=int))
    with pytest.raises(ConfigurationError, match="30 binary features, not 68"):
        member.load()


ARFF = """@RELATION sites
@ATTRIBUTE address {-1,1}
@ATTRIBUTE length {1,0,-1}
@ATTRIBUTE pixels NUMERIC
@ATTRIBUTE class {-1,1}
@DATA
-1,1,2.5,1
1,-1,7,-1
1,0,0,1
"""


def site(
    text: str = ARFF,
    checksum: str | None = None,
    address: str = "https://www.openml.org/data/v1/download/9/sites.arff",
) -> dict[str, bytes]:
    """OpenML's answers for one data set, keyed by the end of the address."""
    columns = [("address", "nominal"), ("length", "nominal"), ("pixels", "numeric")]
    features = [
        {
            "index": str(index),
            "name": name,
            "data_type": kind,
            "is_target": str(name == "class").lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for index, (name, kind) in enumerate([*columns, ("class", "nominal")])
    ]
    about = {
        "id": "4534",
        "name": "sites",
        "description": "Sites.",
        "version": "1",
        "format": "ARFF",
        "status": "active",
        "file_id": "9",
        "url": address,
        "md5_checksum": checksum or hashlib.md5(text.encode()).hexdigest(),
    }
    return {
        "json/data/4534": json.dumps({"data_set_description": about}).encode(),
        "features/4534": json.dumps({"data_features": {"feature": features}}).encode(),
        "sites.arff": text.encode(),
    }


class OpenML:
    """A server that answers like OpenML.

    Args:
        compressed: whether to compress answers.
        failures: the number of first requests that get the status 503.
    """

    def __init__(self, pages: dict[str, bytes], compressed: bool, failures: int = 0) -> None:
        self.requests: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                (page,) = [text for end, text in pages.items() if self.path.endswith(end)]
                self.send_response(503 if len(site.requests) <= failures else 200 if page else 412)
                page = page.replace(b"https://www.openml.org", site.address.encode())
                if compressed:
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()  # Without a length, as OpenML may answer.
                self.wfile.write(gzip.compress(page) if compressed else page)

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01])

    def __enter__(self) -> "OpenML":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., OpenML]]:
    """Replaces OpenML with a server that has these pages."""
    with ExitStack() as started:

        def serve(pages: dict[str, bytes], compressed: bool = False, **options: Any) -> OpenML:
            server = started.enter_context(OpenML(pages, compressed, **options))
            monkeypatch.setattr(openml, "ADDRESS", f"{server.address}/json/data")
            return server

        yield serve


@pytest.mark.parametrize("compressed", [False, True])
def test_table_is_read_with_and_without_compression(
    answered: Callable[..., OpenML], compressed: bool
) -> None:
    server = answered(site(), compressed)
    x, y = TABLE(4534)
    # A category's value is the number that it names, not its position in the list.
    assert x.tolist() == [[-1, 1, 2.5], [1, -1, 7], [1, 0, 0]]
    assert y.tolist() == [1, -1, 1]
    assert len(server.requests) == len(set(server.requests)) == 3  # nothing is loaded twice


def test_ignored_columns_are_left_out_and_quoted_values_are_read(
    answered: Callable[..., OpenML],
) -> None:
    text = ARFF.replace("-1,1,2.5,1", "'-1', 1 ,2.5,'1'").replace("@DATA", "@data")
    pages = site(text)
    pages["features/4534"] = pages["features/4534"].replace(
        b'"length", "data_type": "nominal", "is_target": "false", "is_ignore": "false"',
        b'"length", "data_type": "nominal", "is_target": "false", "is_ignore": "true"',
    )
    answered(pages)
    x, y = TABLE(4534)
    assert x.tolist() == [[-1, 2.5], [1, 7], [1, 0]]
    assert y.tolist() == [1, -1, 1]


def test_rows_are_counted_while_they_arrive(answered: Callable[..., OpenML]) -> None:
    answered(site(ARFF + "1,0,0,1\n" * 247))
    progress: list[int] = []
    x, _ = TABLE(4534, progress.append)
    assert len(x) == 250
    assert progress == [100, 200]


@pytest.mark.slow
def test_requests_are_retried_after_short_outages_but_not_after_refusals(
    answered: Callable[..., OpenML],
) -> None:
    server = answered(site(), failures=3)
    assert len(TABLE(4534)[0]) == 3
    assert len(server.requests) == 3 + 3
    server = answered({**site(), "json/data/4534": b""})
    with pytest.raises(OSError, match="412"):
        TABLE(4534)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        (site(checksum="0" * 32), "md5 checksum"),
        (site(ARFF.replace("7", "seven")), None),
        (site(ARFF[:60]), None),
        (site(ARFF.replace("0,0,1", "0,?,1")), "could not convert"),
        (site(ARFF.replace("0,0,1", "0,nan,1")), r"shape \(3, 4\)"),
        (site(ARFF.replace("1,0,0,1", "1,0,1")), "number of columns"),
        (
            {**site(), "features/4534": b'{"data_features": {"feature": []}}'},
            "must have 0 columns",
        ),
        (site(address="ftp://openml.org/sites.arff"), "not an address on the web"),
        ({**site(), "json/data/4534": b"<html>"}, None),
        ({**site(), "json/data/4534": b"{}"}, "data_set_description"),
    ],
)
def test_malformed_answers_are_rejected(
    pages: dict[str, bytes], message: str | None, answered: Callable[..., OpenML]
) -> None:
    answered(pages)
    with pytest.raises(ValueError, match=message):
        TABLE(4534)


def test_error_without_a_network_says_what_to_do(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(openml, "ADDRESS", address)
    monkeypatch.setattr(openml, "PATIENCE", 0.0)
    monkeypatch.setattr(openml, "table", TABLE)
    with pytest.raises(ConfigurationError) as caught:
        datasets.build("mnist").load()
    message = str(caught.value)
    assert "cannot be downloaded from OpenML (554)" in message
    assert "refused" in message
    assert "set RAMPART_DATA_DIR" in message
    assert not folders.cache.exists()


def test_unresponsive_server_times_out(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(openml, "ADDRESS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(openml, "PATIENCE", 0.0)
        monkeypatch.setattr(openml, "table", TABLE)
        monkeypatch.setattr(openml, "SILENCE", 0.05)
        with pytest.raises(ConfigurationError, match=r"timed out.*set RAMPART_DATA_DIR"):
            datasets.build("mnist").load()
