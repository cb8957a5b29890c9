"""Measures one size for benchmarks/aggregation.py, and prints JSON.

Usage: `aggregation_cell.py N D REPEATS ONLY`.
"""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from unittest.mock import MagicMock

import torch

from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.robust import Context, aggregate, linalg
from rampart_fl.shared.robust.context import PublicData
from rampart_fl.shared.robust.rules import rules

SLOW = 5.0
"""Time limit in seconds; a call that takes longer in the warm-up round is not repeated."""
MEMORY = 12 * 2**30
"""Memory limit in bytes; the benchmark leaves out a peer's call that needs more memory."""
SMALL, MORE = 64 * 2**20, 8
"""For a pool below `SMALL` bytes the number of rounds is multiplied by `MORE`, because short calls
are more sensitive to other load on the machine."""

SAMPLES, CLASSES = 16, 10
"""Number of public samples, and of classes of the network, for rules that need a network."""

Call = Callable[[], object]


@dataclass
class Timed:
    """A call and its measurements."""

    name: str
    call: Call
    torch_only: bool = False
    seconds: list[float] = field(default_factory=list)
    extra: int = 0
    refused: str = ""

    def run(self) -> None:
        """Makes the call once; measures its time and the growth of the process."""
        os.environ["RAMPART_KERNELS"] = "torch" if self.torch_only else "auto"
        before = memory("VmRSS")
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        start = time.perf_counter()
        try:
            self.call()
        except (RampartError, RuntimeError, MemoryError, ValueError) as error:
            self.refused = str(error).splitlines()[0][:80]
            return
        finally:
            took = time.perf_counter() - start
        self.seconds.append(took)
        self.extra = max(self.extra, memory("VmHWM") - before)

    def result(self) -> dict:
        """The measurements that the table needs."""
        if self.refused:
            return {"name": self.name, "refused": self.refused}
        best = min(self.seconds[1:] or self.seconds)
        return {"name": self.name, "seconds": best, "extra": max(0, self.extra)}


def memory(what: str) -> int:
    """A field of /proc/self/status in bytes."""
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what + ":"))


def updates(n: int, d: int, device: str = "cpu") -> torch.Tensor:
    """Models that differ by small updates; the last fifth of the rows has larger updates."""
    draws = torch.Generator(device).manual_seed(0)
    block_ND = torch.empty(n, d, device=device)
    base_D = torch.randn(d, generator=draws, device=device) * 0.05
    for i, row_D in enumerate(block_ND):
        row_D.normal_(generator=draws).mul_(0.01 if i < n - n // 5 else 0.05).add_(base_D)
    return block_ND


def gram(block_ND: torch.Tensor) -> torch.Tensor:
    """The lower bound for rules that use distances: one centred Gram matrix in plain torch."""
    n = len(block_ND)
    total_NN = torch.zeros(n, n, dtype=torch.float64, device=block_ND.device)
    for start in range(0, block_ND.shape[1], 16_384):
        part_NC = block_ND[:, start : start + 16_384]
        part_NC = part_NC - part_NC[0]
        total_NN += part_NC @ part_NC.T
    return total_NN


def plans(n: int, f: int) -> dict[str, list]:
    """The stages of every rule and of some pipelines, keyed by name."""
    special = {
        "centered_clipping": {"tau": 1.0},
        "monna": {"pivot": "0".zfill(len(str(n - 1)))},
    }
    plans_of = {name: [{"name": name, **special.get(name, {})}] for name in rules.names()}
    plans_of |= {
        " + ".join(stages): list(stages)
        for stages in (
            ("nnm", "trimmed_mean"),
            ("nnm", "krum"),
            ("clipping", "krum"),
            ("arc", "geometric_median"),
            ("bucketing", "median"),
        )
    }
    plans_of["bucketing + median"] = [{"name": "bucketing", "f": f // 2}, "median"]
    return plans_of


def linear(models_KD: torch.Tensor, x_KB: torch.Tensor) -> torch.Tensor:
    """Logits (K, B, C) of linear models without bias, which can have any number of parameters."""
    return x_KB.to(models_KD.dtype) @ models_KD.unflatten(1, (CLASSES, -1)).mT


def full_context(update_D: torch.Tensor) -> Context:
    """A context with all inputs that any rule may ask for."""
    draws, features = torch.Generator().manual_seed(1), len(update_D) // CLASSES
    return Context(
        seed=1,
        server_update_D=update_D.clone(),
        reference_D=torch.zeros_like(update_D),
        predict=linear,
        public=PublicData(
            torch.randn(SAMPLES, features, generator=draws).to(update_D.device),
            (torch.arange(SAMPLES) % CLASSES).to(update_D.device),
        ),
    )


def aggregation(block_ND: torch.Tensor, plan: list, f: int) -> Call:
    """A call that aggregates rows, with all inputs that any stage may ask for."""
    n = len(block_ND)
    context = full_context(block_ND[0])
    gaps = {"loss_gap": torch.linspace(0, 1, n, dtype=torch.float64)}
    return lambda: aggregate(block_ND, plan, f=f, metadata=gaps, context=context)


def ours(block_ND: torch.Tensor, f: int) -> list[Timed]:
    """The calls of every rule, of some pipelines, and of the fallback without a compiler."""
    calls = {name: aggregation(block_ND, plan, f) for name, plan in plans(len(block_ND), f).items()}
    fallback = ("median", "trimmed_mean", "krum", "geometric_median", "nnm + trimmed_mean")
    entries = [Timed(name, call) for name, call in calls.items()]
    return entries + [Timed(f"{name} [torch]", calls[name], torch_only=True) for name in fallback]


def peers(block_ND: torch.Tensor, f: int) -> dict[str, list[Timed]]:
    """ByzFL's and Flower's calls, keyed by the name of Rampart's pipeline; empty without them."""
    for module in ("", ".datasets", ".transforms", ".models"):
        sys.modules.setdefault(f"torchvision{module}", MagicMock())
    try:
        import byzfl
        from flwr.server.strategy import aggregate as flower
    except ImportError:
        return {}
    n, numbers = len(block_ND), 4 * block_ND.numel()
    rows = block_ND.numpy()
    subsets = comb(n, f)

    def results() -> list:
        """Rows in Flower's format; a new list for each call, because Flower modifies it."""
        return [([row], 1) for row in rows]

    def both(make: Callable[[], Callable], needs: float, note: str = "") -> list[Timed]:
        """ByzFL's calls on torch rows and on numpy rows."""
        timed = [
            Timed("ByzFL (torch)", lambda: make()(block_ND)),
            Timed("ByzFL (numpy)", lambda: make()(rows)),
        ]
        for entry in timed:
            if needs > MEMORY:
                entry.refused = f"not run: {needs / 2**30:.0f} GiB"
            entry.refused = note or entry.refused
        return timed

    def nnm() -> Callable:
        return lambda block: byzfl.TrMean(f)(byzfl.NNM(f)(block))

    many = f"not run: {subsets:.1e} subsets" if subsets > 10_000 else ""
    calls = {
        "weighted_mean": both(byzfl.Average, numbers),
        "median": both(byzfl.Median, 3 * numbers),
        "trimmed_mean": both(lambda: byzfl.TrMean(f), 3 * numbers),
        "mean_around_median": both(lambda: byzfl.Meamed(f), 5 * numbers),
        "krum": both(lambda: byzfl.Krum(f), 3 * numbers),
        "multi_krum": both(lambda: byzfl.MultiKrum(f), 3 * numbers),
        "rfa": both(byzfl.GeometricMedian, 3 * numbers),
        "centered_clipping": both(lambda: byzfl.CenteredClipping(tau=1.0), 3 * numbers),
        "monna": both(lambda: byzfl.MoNNA(f), 3 * numbers),
        "caf": both(
            lambda: byzfl.CAF(f), 3 * numbers, "not run: minutes" if numbers > 2**28 else ""
        ),
        "minimum_diameter_averaging": both(lambda: byzfl.MDA(f), 3 * numbers, many),
        "smea": both(lambda: byzfl.SMEA(f), 3 * numbers, f"not run: {subsets:.1e} subsets"),
        "nnm + trimmed_mean": both(nnm, (n - f) * numbers),
    }
    calls["weighted_mean"].append(Timed("Flower", lambda: flower.aggregate(results())))
    calls["median"].append(Timed("Flower", lambda: flower.aggregate_median(results())))
    calls["trimmed_mean"].append(
        Timed("Flower", lambda: flower.aggregate_trimmed_avg(results(), f / n))
    )
    if n * numbers < 50 * 2**30:
        calls["krum"].append(Timed("Flower", lambda: flower.aggregate_krum(results(), f, 0)))
        calls["multi_krum"].append(
            Timed("Flower", lambda: flower.aggregate_krum(results(), f, n - f))
        )
    bulyan = Timed(
        "Flower", lambda: flower.aggregate_bulyan(results(), f, flower.aggregate_krum, to_keep=0)
    )
    if n > 20:
        bulyan.refused = "not run: minutes"
    calls["bulyan"] = [bulyan]
    return calls


def main() -> None:
    """Makes all calls in turn and prints the measurements."""
    n, d, repeats = (int(text) for text in sys.argv[1:4])
    only = sys.argv[4] if len(sys.argv) > 4 else ""
    torch.set_grad_enabled(False)
    f, load = n // 5, os.getloadavg()[0]
    block_ND = updates(n, d)
    floors = [Timed("read", block_ND.sum), Timed("gram", lambda: gram(block_ND))]
    own = [entry for entry in ours(block_ND, f) if only in entry.name]
    others = {name: timed for name, timed in peers(block_ND, f).items() if only in name}
    everything = floors + own + [entry for timed in others.values() for entry in timed]
    if 4 * n * d < SMALL:
        repeats *= MORE
    for turn in range(repeats + 1):
        for entry in everything:
            if not entry.refused and not (turn and entry.seconds[0] > SLOW):
                entry.run()
                print(f"  {turn} {entry.name} {entry.seconds[-1:]}", file=sys.stderr, flush=True)
    entries = []
    for entry in own:
        row = entry.result()
        results = [timed.result() for timed in others.get(entry.name, [])]
        if results:
            row["peer"] = min(results, key=lambda peer: peer.get("seconds", 1e9))
        entries.append(row)
    libraries = {
        name: importlib.metadata.version(name)
        for name in ("torch", "numpy", "byzfl", "flwr")
        if others or name in ("torch", "numpy")
    }
    os.environ["RAMPART_KERNELS"] = "auto"
    cell = {
        "n": n,
        "d": d,
        "pool": 4 * n * d,
        "read": floors[0].result()["seconds"],
        "gram": floors[1].result()["seconds"],
        "threads": torch.get_num_threads(),
        "load": load,
        "kernels": linalg.backend(),
        "versions": {"python": sys.version.split()[0], **libraries},
        "entries": entries,
    }
    print(json.dumps(cell))


if __name__ == "__main__":
    main()
