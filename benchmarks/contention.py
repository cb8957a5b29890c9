"""Seconds that a simulation takes while other processes compete for the same processors.

    python benchmarks/contention.py [--experiment NAME] [--rounds N] [--busy 0 10] [--limit 120]

`rampart simulate` runs alone and beside busy processes, each time in two variants: with one thread,
and with one thread per processor. `--spinning` adds a third variant, in which threads spin while
they wait instead of sleeping. CPU seconds are those of the simulation only. A run that takes longer
than the limit is stopped, and the table has the number of rounds until then. Ratios compare CPU
seconds per round with those of one thread alone. A run without a completed round has no ratio.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rampart_fl.shared.runtime import cpus

OUT = Path(__file__).parent / "results" / "contention.md"
BUSY = "while True: pass"
VARIANTS = {"one thread": ("passive", 1), "all threads": ("passive", cpus.threads())}
"""For each variant, OpenMP's policy for waiting threads and the number of threads."""
SPINNING = {"all threads, spinning": ("active", cpus.threads())}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Runs this many processes that compute without a pause while the context lasts."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def simulate(
    experiment: str, rounds: int, policy: str, threads: int, limit: float, out: Path
) -> tuple[float | None, float, int]:
    """Wall-clock seconds (None beyond the limit), CPU seconds, and the number of ended rounds."""
    unset = {"OMP_WAIT_POLICY", "OMP_NUM_THREADS", "RAMPART_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"OMP_WAIT_POLICY": policy}
    command = [sys.executable, "-m", "rampart_fl.services.console", "simulate", experiment]
    command += ["--rounds", str(rounds), "--threads", str(threads), "--out", str(out)]
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        quiet = subprocess.DEVNULL
        subprocess.run(
            command, env=environment, stdout=quiet, stderr=quiet, timeout=limit, check=True
        )
        wall: float | None = time.perf_counter() - began
    except subprocess.TimeoutExpired:
        wall = None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    records = out / "records.jsonl"
    return wall, used, len(records.read_text().splitlines()) if records.exists() else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every variant and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--experiment", default="digits-sign-flip")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 10])
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--spinning", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    variants = {**VARIANTS, **(SPINNING if given.spinning else {})}
    lines = [
        "# A simulation beside other work",
        "",
        f"{given.rounds} rounds of `{given.experiment}`, at most {given.limit:g} seconds, on "
        f"{platform.machine()} with {cpus.available():g} processors, {os.getloadavg()[2]:.1f} "
        "processes waiting for them before.",
        "",
        "| variant | threads | busy processes | seconds | CPU seconds | rounds | ratio |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    alone: float | None = None
    for processes in given.busy:
        for name, (policy, threads) in variants.items():
            with busy(processes), tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "run"
                wall, used, ended = simulate(
                    given.experiment, given.rounds, policy, threads, given.limit, out
                )
            took = f"> {given.limit:g}" if wall is None else f"{wall:.1f}"
            alone = used / ended if alone is None and ended else alone
            ratio = f"{used / ended / alone:.2f}" if alone and ended else ""
            lines.append(
                f"| {name} | {threads} | {processes} | {took} | {used:.1f} | {ended} | {ratio} |"
            )
            print(lines[-1], flush=True)
    given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
