"""Measures time and memory of rounds whose updates exceed the limit on the pool's memory.

    python benchmarks/stream.py            25 clients with 10^8 numbers each: 40 GB of disk
    python benchmarks/stream.py --dim 1e7 --rules median

Each rule runs in a separate process, which runs the worker's round engine on blobs, as the service
does. The table compares the time of a round's mathematics (from the first pass to the finished
record, with all models stored) with two lower bounds, called floors, which are measured in the same
process:

- reading: the time to read the pool's file once for each pass, and to write the bytes of models
  and of the rows that stages keep;
- arithmetic: the time of the same round on a smaller pool in memory, scaled by the numbers of
  coordinates.

The page cache is dropped before the round and before each measurement. Memory is the largest
resident size of the process, mapped pages included, minus its size before the round opened.

Legend: N clients, D coordinates.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.runtime import cpus

DETECTORS = [{"name": "response"}, {"name": "challenge"}]


class Cell(NamedTuple):
    """What one row of the table measures.

    Args:
        server: the table `server` of the experiment.
        passes: how many times a round reads the pool, or rows of earlier rounds.
        kept: how many rows a round writes for each client, besides models.
    """

    server: dict[str, Any]
    passes: int
    kept: int = 0


RULES = {
    "weighted_mean": Cell({"rule": "weighted_mean"}, 1),
    "median": Cell({"rule": "median"}, 1),
    "nnm + trimmed_mean": Cell({"rule": ["nnm", "trimmed_mean"], "f": 6}, 2),
    "fedcap": Cell({"rule": "weighted_mean", "customizer": "fedcap", "detectors": DETECTORS}, 3),
    # The sums are written to a file and to the blob of the state, and read once.
    "foolsgold": Cell({"rule": "foolsgold"}, 3, kept=2),
}
PIECE = 8 << 20
COLUMNS = (
    "rule",
    "models",
    "loading, s",
    "mathematics, s",
    "of it storing, s",
    "reading and writing, s",
    "arithmetic, s",
    "ratio to the larger floor",
    "memory, GiB",
)


def spec_of(dim: int) -> ModelSpec:
    """A model with a body and a head."""
    return ModelSpec.of(
        [("body.weight", (dim - 1010,)), ("head.bias", (10,)), ("head.weight", (1000,))]
    )


def experiment(server: dict[str, Any], clients: int) -> Experiment:
    """An experiment with this server; its data and its network are not used."""
    data = {"dataset": "digits", "clients": clients}
    return Experiment.from_tables(
        {"name": "stream", "data": data, "model": "logistic", "server": server}
    )


def store_vector(blobs: Blobs, spec: ModelSpec, seed: int) -> str:
    """The digest of a new random vector."""
    draws = np.random.default_rng(seed)
    with blobs.writer() as writer:
        writer.write(wire.header(spec))
        left = spec.dim
        while left:
            count = min(left, PIECE // 4)
            writer.write((1e-3 * draws.standard_normal(count, dtype=np.float32)).data)
            left -= count
        return writer.commit()


def status(kind: str) -> int:
    """Bytes of this process: VmRSS for all that is resident, RssFile for mapped files."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.partition(f"{kind}:")[2].split()[0])


def forget(descriptor: int) -> None:
    """Drops a file's pages from the page cache."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def pool_file() -> int:
    """A descriptor of this process's pool, which is a mapped file without a name."""
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "deleted" in line]
    largest = max(lines, key=lambda line: _size(line.split()[0]))
    return os.open(f"/proc/self/map_files/{largest.split()[0]}", os.O_RDONLY)


def _size(span: str) -> int:
    begin, _, end = span.partition("-")
    return int(end, 16) - int(begin, 16)


def duration(work: Callable[[], object]) -> float:
    """The duration of a call in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Round:
    """One round of the round engine; the uploads are stored as blobs before the round."""

    def __init__(
        self,
        server: dict[str, Any],
        folder: Path,
        dim: int,
        uploads: list[str],
        memory: int | None,
        ranks: Ranks | None = None,
    ) -> None:
        self.clients = [f"client-{i:02d}" for i in range(len(uploads))]
        self.blobs, self.spec = Blobs(folder), spec_of(dim)
        given, device = experiment(server, len(uploads)), torch.device("cpu")
        with (ranks or Ranks()).on_all_ranks("begin", folder.name, given, self.spec, given.seed):
            self.engine = RoundEngine(given, self.spec, self.blobs, device, memory, ranks)
        first = store_vector(self.blobs, self.spec, 99)
        self.engine.restore(Snapshot(global_model=first, reference=first))
        self.receipts = {
            client: Receipt(
                round=0, kind="update", client=client, digest=digest, started=first, samples=10
            )
            for client, digest in zip(self.clients, uploads, strict=True)
        }

    def load(self) -> None:
        """Reads the uploads into the pool."""
        self.engine.open_round(self.clients)
        for receipt in self.receipts.values():
            self.engine.load([receipt])

    def decide(self) -> dict[str, float]:
        """The seconds of each step of the round."""
        standing = Standing(len(self.clients), len(self.clients))
        return self.engine.close_round(0, self.receipts, "0-0", (), standing).timings

    def drop_models(self) -> int:
        """Deletes the models that the round made; returns how many there were."""
        assert self.engine.snapshot is not None
        made = {self.engine.snapshot.global_model, *self.engine.snapshot.customized.values()}
        self.blobs.delete(made)
        return len(made)


def mathematics(steps: dict[str, float]) -> float:
    """The seconds from the first pass over the pool to the finished record."""
    return sum(seconds for name, seconds in steps.items() if name not in ("collect", "load"))


def arithmetic_floor(server: dict[str, Any], folder: Path, dim: int, clients: int) -> float:
    """The seconds of a round on a pool in memory, without the time of storing its models."""
    blobs, spec = Blobs(folder), spec_of(dim)
    uploads = [store_vector(blobs, spec, seed) for seed in range(clients)]
    resident = Round(server, folder, dim, uploads, None)
    resident.load()
    steps = resident.decide()
    resident.drop_models()
    # If the pool is in a file, the rows' norms for the record are measured while the rows are
    # loaded.
    return mathematics(steps) - steps["store"] - steps["record"]


def reading_floor(descriptor: int, passes: int, models: int, dim: int, folder: Path) -> float:
    """The seconds of reading a file a number of times, and of writing the bytes of models."""

    def read_all() -> None:
        for _ in range(passes):
            forget(descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            while os.read(descriptor, PIECE):
                pass

    def write_models() -> None:
        data = os.urandom(PIECE)
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(models * dim * 4 // PIECE):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())

    return duration(read_all) + duration(write_models)


def cell(given: argparse.Namespace) -> dict[str, float]:
    """Measures one rule in this process."""
    server, passes, kept = RULES[given.cell]
    torch.set_num_threads(given.threads)
    uploads = json.loads(Path(given.uploads).read_text())
    folder = Path(given.folder)
    arithmetic = given.scale * arithmetic_floor(
        server, folder, given.dim // given.scale, len(uploads)
    )
    streamed = Round(server, folder, given.dim, uploads, given.memory)
    idle, most, done = status("VmRSS"), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, status("VmRSS"))

    threading.Thread(target=watch, daemon=True).start()
    loading = duration(streamed.load)
    descriptor = pool_file()
    forget(descriptor)
    steps = streamed.decide()
    done.set()
    models = streamed.drop_models()
    return {
        "models": models,
        "loading": loading,
        "mathematics": mathematics(steps),
        "store": steps["store"],
        "reading": reading_floor(
            descriptor, passes, models + kept * len(uploads), given.dim, folder
        ),
        "arithmetic": arithmetic,
        "memory": most - idle,
    }


def options(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark of large pools; `doc` is its module's docstring."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=25)
    parser.add_argument("--dim", type=lambda text: int(float(text)), default=10**8)
    parser.add_argument("--memory", type=int, default=1 << 30, help="RAMPART_POOL_MEMORY, in bytes")
    parser.add_argument(
        "--scale", type=int, default=10, help="factor by which the pool in memory is smaller"
    )
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--threads", type=int, default=cpus.threads())
    parser.add_argument("--folder", default=None, help="folder on the disk to measure")
    return parser


def table(columns: Sequence[str]) -> str:
    """The first two lines of a table whose first column is text."""
    return "| " + " | ".join(columns) + " |\n|---|" + "---:|" * (len(columns) - 1)


def main() -> None:
    """Measures all rules, and prints the table."""
    parser = options(__doc__)
    parser.add_argument("--cell", choices=list(RULES), help=argparse.SUPPRESS)
    parser.add_argument("--uploads", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(cell(given)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        blobs, spec = Blobs(Path(folder)), spec_of(given.dim)
        uploads = [store_vector(blobs, spec, seed) for seed in range(given.clients)]
        listed = Path(folder) / "uploads.json"
        listed.write_text(json.dumps(uploads))
        print(table(COLUMNS))
        for rule in given.rules:
            command = [sys.executable, __file__, "--cell", rule, "--uploads", str(listed)]
            for name in ("dim", "memory", "scale", "threads"):
                command += [f"--{name}", str(getattr(given, name))]
            done = subprocess.run(
                [*command, "--folder", folder], stdout=subprocess.PIPE, text=True, check=True
            )
            result = json.loads(done.stdout)
            floor = max(result["reading"], result["arithmetic"])
            seconds = ("loading", "mathematics", "store", "reading", "arithmetic")
            columns = [
                rule,
                str(result["models"]),
                *(f"{result[name]:.1f}" for name in seconds),
                f"{result['mathematics'] / floor:.2f}",
                f"{result['memory'] / 2**30:.2f}",
            ]
            print("| " + " | ".join(columns) + " |", flush=True)


if __name__ == "__main__":
    main()
