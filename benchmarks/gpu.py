"""All checks and measurements that need a GPU, in one command of less than ten minutes.

    PYTHONPATH=src python benchmarks/gpu.py                          the first CUDA device
    PYTHONPATH=src python benchmarks/gpu.py --device cpu --smoke     checks the script itself

The report has the agreement of the device with the CPU, one cell of FedCAP's Table I on CIFAR-10
(target: 30 s on an H200), and the times of all aggregation rules (`benchmarks/device.py`). The
script writes the report after each part. Without CIFAR-10, the cell trains on random images of the
same shape, so the cell's time is valid, but its accuracy is not. Without a CUDA device, the script
exits with code 3.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.simulation import Simulation

ROOT = Path(__file__).resolve().parent.parent
NO_CUDA = 3
"""Exit code without a CUDA device."""
ALIKE = ("digits-sign-flip", "digits-robust", "digits-hmsdfl", "digits-fltrust", "digits-dba")
"""Shipped experiments whose rounds are compared; their data need no download."""
TOLERANCE = 1e-3
"""Maximum accepted difference of two global models, relative to their distance from the first
model."""


def agreement(device: str, names: tuple[str, ...]) -> tuple[str, bool]:
    """Rounds of experiments on the CPU and on a device: a table, and whether all agree."""
    lines = ["| experiment | relative difference | verdicts |", "|---|---:|---|"]
    alike = True
    for name in names:
        experiment = Experiment.load(name).model_copy(update={"rounds": 2})
        here, there = (Simulation.of(experiment, place) for place in ("cpu", device))
        begun_D = here.server.global_D.double()
        records = [(here.step(), there.step()) for _ in range(2)]
        end_D = here.server.global_D.double()
        apart = (there.server.global_D.cpu().double() - end_D).norm() / (end_D - begun_D).norm()
        same = all(
            [(v.client, v.decision) for v in one.verdicts]
            == [(v.client, v.decision) for v in other.verdicts]
            for one, other in records
        )
        alike &= same and float(apart) <= TOLERANCE
        lines.append(f"| {name} | {float(apart):.1e} | {'equal' if same else 'differ'} |")
    return "\n".join(lines) + "\n", alike


def cell(device: str, rounds: int, samples: int | None, limit: float) -> str:
    """The cell FedCAP / CIFAR-10 / sign flip; it stops after `limit` seconds."""
    experiment = Experiment.load("fedcap-cifar10")
    real = datasets.parse("cifar10").source().present
    with tempfile.TemporaryDirectory() as folder:
        if not real:
            _random_images(Path(folder), 20 * 600)
            os.environ["RAMPART_DATA_DIR"] = folder
        data = experiment.data.model_copy(update={"samples": samples or experiment.data.samples})
        update = {"rounds": rounds, "data": data}
        simulation = Simulation.of(experiment.model_copy(update=update), device)
        began, first = time.perf_counter(), 0.0
        while not simulation.ended and time.perf_counter() - began < limit:
            simulation.step()
            first = first or time.perf_counter() - began
        _wait(device)
        seconds, done = time.perf_counter() - began, len(simulation.records)
    figures = simulation.result().figures
    row = f"{figures['accuracy']:.1%}, {len(figures['evicted'])} evicted" if real else "random data"
    return (
        "| rounds | seconds | first round | seconds for 100 rounds | result |\n"
        "|---:|---:|---:|---:|---|\n"
        f"| {done} | {seconds:.1f} | {first:.2f} | {100 * seconds / done:.1f} | {row} |\n"
    )


def rules(device: str, sizes: list[str], out: Path, limit: float) -> str:
    """The report of `benchmarks/device.py`, incomplete if the benchmark exceeded the time limit."""
    path = out.with_name(f"{out.stem}-rules.md")
    script = str(ROOT / "benchmarks/device.py")
    words = [sys.executable, script, "--device", device, "--out", str(path), "--repeats", "3"]
    try:
        subprocess.run([*words, "--sizes", *sizes], check=True, timeout=limit, stdout=sys.stderr)
        ended = ""
    except subprocess.TimeoutExpired:
        ended = f"\nEnded after {limit:.0f} seconds.\n"
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return text.partition("\n\n")[2] + ended


def _random_images(folder: Path, count: int) -> None:
    """A file cifar10.npz with random images of ten classes."""
    draws = np.random.default_rng(0)
    arrays = {}
    for part, size in (("train", count), ("test", 10)):
        arrays[f"x_{part}"] = draws.integers(0, 256, (size, 32, 32, 3), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(size, dtype=np.uint8) % 10
    np.savez(folder / "cifar10.npz", **arrays)


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Runs all parts and writes the report after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true", help="Small sizes and few rounds.")
    parser.add_argument("--seconds", type=float, default=540, help="Time for all parts together.")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/gpu.md")
    given = parser.parse_args()
    if torch.device(given.device).type == "cuda" and not torch.cuda.is_available():
        sys.stderr.write(
            f"no CUDA device: torch {torch.__version__} finds none. To check the script, run "
            "python benchmarks/gpu.py --device cpu --smoke\n"
        )
        sys.exit(NO_CUDA)
    began, smoke, alike = time.monotonic(), given.smoke, [True]

    def left() -> float:
        return max(given.seconds - (time.monotonic() - began), 1.0)

    def compared() -> str:
        text, alike[0] = agreement(given.device, ALIKE[:1] if smoke else ALIKE)
        return text

    sizes = ["16x1e3"] if smoke else ["64x1.1e7", "256x1.1e7", "1024x1.1e7"]
    parts: dict[str, Callable[[], str]] = {
        "Agreement with the CPU": compared,
        "FedCAP, CIFAR-10, sign flip": lambda: cell(
            given.device, *((2, 40) if smoke else (100, None)), limit=left() / 2
        ),
        "Aggregation": lambda: rules(given.device, sizes, given.out, left()),
    }
    cuda = torch.device(given.device).type == "cuda"
    name = torch.cuda.get_device_name(given.device) if cuda else given.device
    report = f"# One device\n\n{name}, torch {torch.__version__}\n"
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for title, part in parts.items():
        try:
            report += f"\n## {title}\n\n{part()}"
        except ConfigurationError as error:
            report += f"\n## {title}\n\n{error}\n"
        given.out.write_text(report)
    report += f"\n{time.monotonic() - began:.0f} seconds in all.\n"
    given.out.write_text(report)
    print(report)
    sys.exit(0 if alike[0] else 1)


if __name__ == "__main__":
    main()
