"""Times a round's mathematics on one process, and on several that divide the coordinates.

    python -m benchmarks.shards                          25 clients with 10^7 numbers each
    python -m benchmarks.shards --parameters 100000000   the same with 10^8: 20 GB of disk
    python -m benchmarks.shards --parameters 100000000 --memory 1073741824
                                                         the same, with the pool on disk: 30 GB

Each measurement runs the worker's round engine on blobs, in processes that torchrun starts, as the
service does. The measured time is from the first pass to the last stored model. For each rule, the
numbers of processes take turns, and the table has the medians. The run fails if the global models
of a rule are not the same for all numbers of processes.

With `--memory`, larger pools are in a file, so that many large updates need little memory. The page
cache is not dropped.

Legend: P processes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.stream import RULES, Round, mathematics, spec_of, store_vector, table
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.follower import follow
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.torch_setup import set_up_torch

RUN = "run"
"""The folder of the blobs, as if they belonged to a run of this name."""


def cell(given: argparse.Namespace) -> None:
    """Computes one round on this rank; rank 0 prints the measurements."""
    ranks, folder = Ranks.connect(), Path(given.folder)
    settings = Settings(
        role="worker",
        operator_token="not-used-by-this-run",
        threads=given.threads,
        pool_memory=given.memory,
    )
    if ranks.rank:
        follow(settings, RunBlobs(str(folder), folder / "cache"), ranks)
        return
    set_up_torch(settings)
    server = RULES[given.cell].server
    uploads = json.loads((folder / "uploads.json").read_text())
    round_ = Round(server, folder / RUN, given.parameters, uploads, given.memory, ranks)
    round_.load()
    steps = round_.decide()
    assert round_.engine.snapshot is not None
    result = {
        "model": round_.engine.snapshot.global_model,
        "mathematics": mathematics(steps),
        "store": steps["store"],
    }
    round_.drop_models()
    print(json.dumps(result))


def measure(given: argparse.Namespace, rule: str, size: int) -> dict[str, float | str]:
    """The measurements of a round with this rule on `size` processes."""
    command = [sys.executable, "-m"]
    if size > 1:
        command += ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", str(size), "-m"]
    command += ["benchmarks.shards", "--cell", rule, "--folder", given.folder]
    for name in ("parameters", "threads"):
        command += [f"--{name}", str(getattr(given, name))]
    if given.memory is not None:
        command += ["--memory", str(given.memory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return result


def row(given: argparse.Namespace, rule: str) -> list[str]:
    """The medians of one rule, and their ratios to those of the first number of processes."""
    results = {size: list[dict[str, float | str]]() for size in given.processes}
    for _ in range(given.repeats):
        for size, of_size in results.items():
            of_size.append(measure(given, rule, size))
    models = {one["model"] for of_size in results.values() for one in of_size}
    if len(models) > 1:
        sys.exit(f"{rule}: the global model depends on the number of processes")
    seconds = [
        [median(float(one[name]) for one in of_size) for name in ("mathematics", "store")]
        for of_size in results.values()
    ]
    columns = [f"{whole:.2f} ({storing:.2f})" for whole, storing in seconds]
    ratios = [f"{whole / seconds[0][0]:.2f}" for whole, _ in seconds[1:]]
    return [rule, *columns, *ratios]


def main() -> None:
    """Measures all rules, and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=25)
    parser.add_argument("--parameters", type=int, default=10**7)
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument(
        "--memory",
        type=int,
        help="RAMPART_POOL_MEMORY of each process, in bytes; by default, all updates are in memory",
    )
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--folder", default=None, help="folder on the disk to use")
    parser.add_argument("--cell", choices=list(RULES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        cell(given)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        given.folder = folder
        blobs, spec = Blobs(Path(folder) / RUN), spec_of(given.parameters)
        uploads = [store_vector(blobs, spec, seed) for seed in range(given.clients)]
        (Path(folder) / "uploads.json").write_text(json.dumps(uploads))
        first, *others = given.processes
        titles = ["rule", *(f"P = {size}, s (storing)" for size in given.processes)]
        titles += [f"P = {size} / P = {first}" for size in others]
        print(table(titles))
        for rule in given.rules:
            print("| " + " | ".join(row(given, rule)) + " |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
