"""Writes the catalogue of stages from the registries: `python -m tools.catalogue`.

The program writes `docs/rules.md`; a test fails if that file is not up to date.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.robust.base import Stage
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.kappa import proven
from rampart_fl.shared.robust.pipeline import Pipeline
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules

PATH = Path(__file__).resolve().parents[1] / "docs" / "rules.md"

OPENING = """# Rules, pre-aggregators, detectors, customizers

Written by `python -m tools.catalogue` from the code; do not edit.

In a round, the server screens the rows, pre-aggregates the accepted rows, and aggregates them with
one rule. Then it updates the global model, audits the rows, and customizes models. An experiment
file names each stage. You can also name stages in one line of Python:

```python
from rampart_fl import aggregate

aggregate(updates_ND, ["bucketing", "nnm", "krum"], f=2)
aggregate(updates_ND, {"name": "trimmed_mean", "b": 3}, f=2)
```

There are n rows of d coordinates, and up to f of them may be hostile. Every rule and pre-aggregator
takes `f`. Before the aggregation, rows that are not finite are left out. Each row that is left out
lowers `f` by one. If the experiment sets `b` or `m`, the row lowers this number by one, too.
Detectors may leave too few rows for `f`. In this case, each client that detectors left out and each
barred client also lowers these numbers by one, until the remaining rows are enough. Barred clients
are evicted, in quarantine or proposed for eviction. *Breakdown* says how many hostile rows a stage
tolerates. "none" means that one row can move the result anywhere; "in norm" means that only the
norm of the result is bounded. *Cost* is a number of arithmetic operations; one pass over the rows
costs n·d.

Rows that do not fit into [`RAMPART_POOL_MEMORY`](operations.md#scaling) are in a file. *Passes*
says how many times a stage reads all rows of the file. If a stage cannot read rows from a file,
*passes* says "in memory only" and the reason. These rules determine how many passes a pipeline
takes:

- When the worker writes a row to the file, it checks that all numbers of the row are finite. This
  check also measures the row's norm, so stages that need norms do not read the rows again for them.
  If a pre-aggregator has mixed the rows, a stage that needs the new rows' norms takes one more
  pass, and `fltrust` takes two more.
- Distances between rows are measured once for all stages of a pipeline. After a pre-aggregator
  that scales rows (`arc`, `clipping`), every stage that needs distances measures them again. The
  distances of the scaled rows cannot be computed accurately from the distances of the unscaled
  rows.
- The iterations of most rules work on distances and weights, and read no rows. If a rule's
  iterations do read rows, the column *Passes* says so.
- Further passes are needed in three cases: rows are almost equal or parallel, all rows are far from
  the middle row, or squares of numbers overflow or underflow in float32.
"""

ASKING = """A detector gives one verdict per client, before or after the rule (`when`). The verdict
is only a request: [the federation decides](operations.md#how-far-decisions-may-go).

*Breakdown* is a number of colluders. Within one round, up to this number of colluders cannot cause
the eviction of an honest client, whatever rows they send. Over several rounds, attackers that move
the models may cause the eviction of honest clients, even if the detector judges each client alone
([example](red-team.md)). The breakdown of a rule does not protect honest clients from the detector
`selection`. If colluders stay within the spread of honest rows, the rule may select them. In this
case, `selection` rejects honest clients or, if it is set to evict, evicts them."""

FAMILIES: tuple[tuple[str, str, Registry[Any]], ...] = (
    ("Rules", "A rule maps rows to one vector.", rules),
    (
        "Pre-aggregators",
        "Pre-aggregators map rows to rows; any number of them may precede a rule.",
        preaggregators,
    ),
    ("Detectors", ASKING, detectors),
    ("Customizers", "A customizer decides which model each client trains from next.", customizers),
)

BOUNDED = ("trimmed_mean", "krum", "median", "geometric_median")
SETTINGS = ((20, 3), (20, 6), (600, 100))


def render() -> str:
    """The catalogue as Markdown."""
    parts = [OPENING]
    for title, gist, registry in FAMILIES:
        lines = [f"## {title}", "", gist, "", *_table(registry)]
        parts.append("\n".join(lines) + "\n")
    parts.append("\n".join(_bounds()) + "\n")
    return "\n".join(parts)


def _table(registry: Registry[Any]) -> Iterator[str]:
    members: dict[str, type[Stage]] = {name: registry.get(name) for name in registry.names()}
    titles = ["name", "what it does", "parameters", "breakdown", "cost", "passes", "source"]
    counted = any(member.passes for member in members.values())
    if not counted:
        titles.remove("passes")
    yield "| " + " | ".join(titles) + " |"
    yield "|---" * len(titles) + "|"
    for name, member in members.items():
        gist = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")
        cells = (
            f"`{name}`",
            gist,
            ", ".join(_parameters(member)),
            member.breakdown,
            member.complexity,
            *([member.passes] if counted else []),
            member.paper,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _parameters(member: type[Stage]) -> Iterator[str]:
    for key, field in member.model_fields.items():
        if key != "f":
            yield " ".join([f"`{field.alias or key}`", *_default(field), *_choices(field)])


def _default(field: FieldInfo) -> Iterator[str]:
    default = None if field.is_required() else field.get_default()
    if default is not None:
        yield str(default).lower() if isinstance(default, bool) else str(default)


def _choices(field: FieldInfo) -> Iterator[str]:
    if get_origin(field.annotation) is Literal:
        others = [str(choice) for choice in get_args(field.annotation) if choice != field.default]
        if others:
            yield f"(or {', '.join(others)})"


def _bounds() -> Iterator[str]:
    yield "## Known bounds"
    yield ""
    yield "For a set S of n - f rows, let mean_S be the mean of the rows x_i in S. A rule F is"
    yield "(f, κ)-robust if, for every such set, ‖F - mean_S‖² is at most κ times the mean of"
    yield "‖x_i - mean_S‖² over S. `rampart_fl.shared.robust.kappa` measures κ on given rows and"
    yield "knows these bounds (Allouah et al., Fixing by mixing, 2023). The bounds of"
    yield "`geometric_median` hold for the exact geometric median. The rule comes close to this"
    yield "exact point only if the distances between rows are far above the rule's `nu`."
    yield "The bound of `krum` is (n-f)/(n-2f-1)·(1 + √(2(n-f-2)/(n-f-1)))². This bound differs"
    yield "from the paper's bound for Krum. The paper's Krum adds the distances to n - f - 1 other"
    yield "rows, but `krum` adds the distances to n - f - 2 other rows. `shared/robust/kappa.py`"
    yield "contains the proof."
    yield ""
    yield "| pipeline | " + " | ".join(f"n = {n}, f = {f}" for n, f in SETTINGS) + " |"
    yield "|---" * (len(SETTINGS) + 1) + "|"
    yield _row("no rule has less than", [f / (n - 2 * f) for n, f in SETTINGS])
    for before in ([], ["nnm"]):
        for rule in BOUNDED:
            stages = [*before, rule]
            bounds = [proven(Pipeline.of(stages, f=f), n, f) for n, f in SETTINGS]
            yield _row(", ".join(f"`{stage}`" for stage in stages), bounds)


def _row(name: str, bounds: list[Any]) -> str:
    return f"| {name} | " + " | ".join(f"{bound:.4g}" for bound in bounds) + " |"


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
