"""Times every aggregation rule, ByzFL and Flower in one run, and writes a table.

    make bench-peers                     once: installs the peers in a separate environment
    python benchmarks/aggregation.py     all sizes (about 15 minutes on 2 cores)

Each size runs in one process. After a warm-up round, each further round makes all calls of a size
once, one after the other. The table has the fastest time of each call, because other processes can
only slow a call down. Peak memory is the pool of rows that a call reads plus the growth of the
process during the call.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from rampart_fl.shared.runtime import cpus

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".bench-peers"
SIZES = ("20x1e5", "20x1e6", "100x1e6", "50x1e7")


def main() -> None:
    """Measures every size and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="NxD")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="measure only calls whose name contains this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/aggregation.md")
    options = parser.parse_args()
    options.out.parent.mkdir(exist_ok=True)
    cells = []
    for size in options.sizes:
        cells.append(measure(size, options.repeats, options.only))
        options.out.write_text(report(cells))
    print(report(cells))


def measure(size: str, repeats: int, only: str) -> dict:
    """Measures one size in a separate process, together with the peers if they are installed."""
    ready = (PEERS / ".ready").exists()
    python = PEERS / "bin/python" if ready else Path(sys.executable)
    rows, _, dim = size.partition("x")
    command = [str(python), str(ROOT / "benchmarks/aggregation_cell.py")]
    command += [rows, str(int(float(dim))), str(repeats), only]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    print(f"measuring {size} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(cells: list[dict]) -> str:
    """All sizes as Markdown."""
    first = cells[0]
    lines = [
        "# Aggregation beside ByzFL and Flower",
        "",
        f"{platform.machine()}, {cpus.available():g} cores, {first['threads']} threads; kernels: "
        f"{first['kernels']}; " + ", ".join(f"{k} {v}" for k, v in first["versions"].items()),
        "",
        "Milliseconds of a whole call, the check for finite rows included; f = n/5. `read` is one "
        "read of the block (a flat sum), `Gram` one centred Gram matrix in plain torch (float32 "
        "products of 16,384 columns, float64 sums). Peer is the faster of ByzFL (its torch and "
        "numpy paths) and Flower. Peak is memory at its highest over the pool's size. "
        "`[torch]` rows run without a compiler (`RAMPART_KERNELS=torch`).",
    ]
    for cell in cells:
        lines += ["", f"## n = {cell['n']}, d = {cell['d']:,}", ""]
        lines += [
            f"read {ms(cell['read'])} ms, Gram {ms(cell['gram'])} ms, "
            f"pool {cell['pool'] / 2**20:.0f} MiB, other load at the start {cell['load']:.1f}",
            "",
            "| pipeline | ms | x read | x Gram | peak | peer | ms | peer / ours | its peak |",
            "|---|---:|---:|---:|---:|---|---:|---:|---:|",
        ]
        lines += [line(cell, entry) for entry in cell["entries"]]
    return "\n".join(lines) + "\n"


def line(cell: dict, entry: dict) -> str:
    """One row of the table of one size."""
    if "refused" in entry:
        return f"| {entry['name']} | {entry['refused']} | | | | | | | |"
    own, peer = entry["seconds"], entry.get("peer")
    cells = [
        entry["name"],
        ms(own),
        f"{own / cell['read']:.1f}",
        f"{own / cell['gram']:.2f}",
        f"{1 + entry['extra'] / cell['pool']:.2f}",
    ]
    if peer is None:
        cells += ["", "", "", ""]
    elif "refused" in peer:
        cells += [peer["name"], peer["refused"], "", ""]
    else:
        cells += [peer["name"], ms(peer["seconds"]), f"{peer['seconds'] / own:.1f}"]
        cells += [f"{1 + peer['extra'] / cell['pool']:.2f}"]
    return "| " + " | ".join(cells) + " |"


def ms(seconds: float) -> str:
    """A duration in milliseconds with at least three significant digits."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
