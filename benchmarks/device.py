"""Times every aggregation rule, and FedCAP's models for all clients, on one device.

    python benchmarks/device.py                                  the first CUDA device
    python benchmarks/device.py --device cpu --sizes 64x1e5      the CPU

Each call is made once to warm up, then `--repeats` times. The table has the fastest time. The
device's queue is empty at the start and at the end of each measurement. Peak is the largest amount
of memory that a call allocates on the device, also as a ratio to the pool's size. The peak
is not available on a CPU. The report is written after each call.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from aggregation_cell import Call, aggregation, gram, plans, updates

from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.robust import Context, Rows
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.runtime.device import device as named

ROOT = Path(__file__).resolve().parent.parent


def customization(block_ND: torch.Tensor) -> Call:
    """A call that makes FedCAP's customized model for every client."""
    fedcap = customizers.build("fedcap")
    context = Context(reference_D=torch.zeros(block_ND.shape[1], device=block_ND.device))

    def call() -> None:
        rows = Rows.of(block_ND)
        models = fedcap.apply(rows, rows, State(), context)[0].models
        assert models is not None
        for name in models.names:
            models.model(name)

    return call


def measure(call: Call, device: str, repeats: int) -> tuple[float, int]:
    """The fastest call in seconds, and the most memory in bytes that a call allocated."""
    cuda, seconds, peak = torch.device(device).type == "cuda", [], 0
    for _ in range(repeats + 1):
        if cuda:
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            held = torch.cuda.memory_allocated(device)
        start = time.perf_counter()
        made = call()
        if cuda:
            torch.cuda.synchronize(device)
            peak = max(peak, torch.cuda.max_memory_allocated(device) - held)
        seconds.append(time.perf_counter() - start)
        del made
    return min(seconds[1:]), peak


def table(n: int, d: int, device: str, repeats: int) -> Iterator[str]:
    """The table of one size in lines of Markdown, each yielded as soon as it is measured."""
    block_ND = updates(n, d, device)
    pool, f = 4 * n * d, n // 5
    read, _ = measure(block_ND.sum, device, repeats)
    product, _ = measure(lambda: gram(block_ND), device, repeats)
    yield f"\n## n = {n}, d = {d:,}\n"
    yield (
        f"f = {f}, pool {pool / 2**30:.2f} GiB; `read`, a flat sum, {1e3 * read:.2f} ms; `Gram`, "
        f"one centred Gram matrix in plain torch, {1e3 * product:.2f} ms.\n"
    )
    yield "| call | ms | x read | x Gram | peak, bytes | peak / pool |"
    yield "|---|---:|---:|---:|---:|---:|"
    calls = {name: aggregation(block_ND, plan, f) for name, plan in plans(n, f).items()}
    calls["FedCAP's customization of all clients"] = customization(block_ND)
    for name, call in calls.items():
        print(f"  {n}x{d} {name}", file=sys.stderr, flush=True)
        try:
            seconds, peak = measure(call, device, repeats)
        except (RampartError, RuntimeError, ValueError) as error:
            yield f"| {name} | {str(error).splitlines()[0][:100]} | | | | |"
            continue
        memory = f"{peak:,} | {peak / pool:.2f}" if peak else " | "
        yield (
            f"| {name} | {1e3 * seconds:.2f} | {seconds / read:.2f} | {seconds / product:.2f} "
            f"| {memory} |"
        )


def main() -> None:
    """Measures every size and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    sizes = ("64x1.1e7", "256x1.1e7", "1024x1.1e7")
    parser.add_argument("--sizes", nargs="+", default=sizes, metavar="NxD")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/device.md")
    given = parser.parse_args()
    torch.set_grad_enabled(False)
    try:
        cuda = named(given.device).type == "cuda"
    except RampartError as error:
        parser.error(str(error))
    name = torch.cuda.get_device_name(given.device) if cuda else given.device
    report = f"# Aggregation on one device\n\n{name}, torch {torch.__version__}\n"
    for size in given.sizes:
        n, _, d = size.partition("x")
        for line in table(int(n), int(float(d)), given.device, given.repeats):
            report += f"{line}\n"
            given.out.write_text(report)
    print(report)


if __name__ == "__main__":
    main()
