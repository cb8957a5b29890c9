"""Compares every rule on float32 rows with the same rule on float64 rows, at full size.

    python benchmarks/accuracy.py [--rows 8 20 50] [--dim 1e7]

Rows are models of norm 60 that differ by updates of norm 0.5 or 0.01. The table has the relative
error of the aggregate, the error of the aggregate as a share of the update's norm, and whether the
rule chose the same rows with both formats. The float32 format alone limits the precision of a model
of norm 60 to 2e-6.
"""

import argparse
import sys
from pathlib import Path

import torch
from aggregation_cell import full_context
from torch import Tensor

from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.robust import Report, Rows, linalg
from rampart_fl.shared.robust.rules import rules

OUT = Path(__file__).resolve().parent / "results/accuracy.md"
SPECIAL = {"norm_clipping": {"threshold": 59.9}}
BY_UPDATES = {"foolsgold"}
"""Rules that would treat models this similar as clones, with weight 0. These rules get updates."""


def main() -> None:
    """Runs every rule at every size and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[8, 20, 50])
    parser.add_argument("--dim", type=float, default=1e7)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    lines = [
        f"# Accuracy at d = {options.dim:,.0f}",
        "",
        f"Kernels: {linalg.backend()}; torch {torch.__version__}.",
        "",
        "| rule | n | update's norm | relative error | of the update | same rows |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for n in options.rows:
        for deviation in (0.5, 0.01):
            lines += table(n, int(options.dim), deviation)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def table(n: int, dim: int, deviation: float) -> list[str]:
    """The table's lines for one number of rows and one norm of updates."""
    block_ND = models(n, dim, deviation)
    gaps = {"loss_gap": torch.linspace(0, 1, n, dtype=torch.float64)}
    f, lines = (n - 3) // 4, []
    for name in sorted(rules.names(), key=lambda name: name in BY_UPDATES):
        if name in BY_UPDATES:
            block_ND -= block_ND[0].clone()
        single, double = (Rows.of(b, metadata=gaps) for b in (block_ND, block_ND.double()))
        print(f"{name} n={n} deviation={deviation}", file=sys.stderr, flush=True)
        try:
            found_D, result = run(name, single, f)
            exact_D, exact = run(name, double, f)
        except RampartError as error:
            lines.append(f"| {name} | {n} | {deviation} | {error} | | |")
            continue
        error = float((found_D.double() - exact_D).norm())
        same = all(
            torch.equal(result.per_row[key] > 0, exact.per_row[key] > 0)
            for key in ("weight", "pick")
            if key in exact.per_row
        )
        relative = error / float(exact_D.norm())
        lines.append(
            f"| {name} | {n} | {deviation} | {relative:.1e} | {error / deviation:.1e} "
            f"| {'yes' if same else 'NO'} |"
        )
    return lines


def run(name: str, rows: Rows, f: int) -> tuple[Tensor, Report]:
    """Applies one rule, with its default parameters as far as possible."""
    context = full_context(rows.row(0))
    parameters = {"pivot": rows.ids[0]} if name == "monna" else SPECIAL.get(name, {})
    member = rules.build(name, f=f, **parameters)
    result_D, _, report = member.apply(rows, member.init(rows.dim), context)
    return result_D, report


def models(n: int, dim: int, deviation: float) -> Tensor:
    """Models of norm 60 plus updates whose norms range from deviation / 2 to deviation."""
    draws = torch.Generator().manual_seed(n)
    base_D = torch.randn(dim, generator=draws)
    base_D *= 60 / base_D.norm()
    block_ND = torch.empty(n, dim)
    for i, row_D in enumerate(block_ND):
        row_D.normal_(generator=draws)
        row_D.mul_(deviation * (1 + i / n) / 2 / row_D.norm()).add_(base_D)
    return block_ND


if __name__ == "__main__":
    main()
