"""Writes the reference of experiment files from the pydantic models: `python -m tools.reference`.

The program writes `docs/experiments.md`; a test fails if that file is not up to date.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from rampart_fl.shared.attacks.data import attacks as data_attacks
from rampart_fl.shared.attacks.model import attacks as model_attacks
from rampart_fl.shared.experiment import sweep
from rampart_fl.shared.experiment.membership import Select
from rampart_fl.shared.experiment.schema import Experiment, Table
from rampart_fl.shared.families.registry import Registry
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.partitions import partitions
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.training.objectives import objectives
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.learning.training.schedules import schedules
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules

PATH = Path(__file__).resolve().parents[1] / "docs" / "experiments.md"

OPENING = """# Experiment files

Written by `python -m tools.reference` from the code; do not edit.

An experiment is one TOML file that defines a federation completely. The smallest experiment has
only a name, a data set and a model:

```toml
name = "my-federation"

[data]
dataset = "digits"

[model]
name = "cnn"
channels = [16, 32]
```

```sh
rampart data show my-federation.toml     # who holds what
rampart simulate my-federation.toml      # in this process
rampart up my-federation.toml            # over HTTP, with the real services
```

All other settings have defaults. `shared/experiments` has complete experiments, which you can also
pass to every command by name. Rampart refuses unknown keys, unknown names and values out of range
when it reads the file, before anything starts. The error names the path of the wrong key:

```
error: my-federation.toml: training.epoch: no such key (did you mean 'epochs'?)
error: unknown personalizer 'dito' (did you mean 'ditto'?); known: apfl, ditto, ...
```

For some keys, the value is a *member* of a family; for example, `iid` and `dirichlet` are members
of the family of partitions. Write the member's name, such as `partition = "iid"`, or a table with
`name` and the member's parameters, such as `partition = { name = "dirichlet", beta = 0.3 }`.

Every experiment has a digest. Two files with the same settings, including defaults, have the same
digest. The order of the keys does not matter. Every record of a run contains the digest.
"""

FAMILIES: dict[str, Registry[Any]] = {
    "data.dataset": datasets,
    "data.partition": partitions,
    "model": models,
    "training.objective": objectives,
    "training.schedule": schedules,
    "personalizer": personalizers,
    "server.detectors": detectors,
    "server.customizer": customizers,
    "attackers.attack": model_attacks,
    "attackers.data_attack": data_attacks,
}
"""Each key whose value is a member, such as a data set, with the member's family."""

ALSO: dict[str, str] = {
    "server.rule": f"{rules.family}s and {preaggregators.family}s, [rules.md](rules.md)",
    "server.root.dataset": f"a {datasets.family}",
    "server.public.dataset": f"a {datasets.family}",
    "server.test.dataset": f"a {datasets.family}",
    "evaluation.trigger": f"a {data_attacks.family} with a trigger",
}
"""What the page says about keys whose possible values are listed on another page, by key."""

MEANINGS = {
    "name": "Name of the experiment, in lower case with hyphens.",
    "description": "Purpose of the experiment.",
    "seed": "Seed of all random draws.",
    "rounds": "Number of rounds.",
    "policy": "Whether rounds wait for their clients (sync) or not (buffered).",
    "personalizer": "How a client trains, and which model it keeps for itself.",
    "attackers": "Groups of hostile clients.",
    "data.dataset": "The data set; see [data.md](data.md).",
    "data.partition": "How samples are divided among clients; see [data.md](data.md).",
    "data.clients": "Number of clients, including hostile ones.",
    "training.epochs": "Passes over a client's samples in a round.",
    "training.batch_size": "Number of samples in each step of the clients' SGD.",
    "training.learning_rate": "Step size of the clients' SGD.",
    "training.momentum": "Momentum of the clients' SGD; it restarts every round.",
    "training.weight_decay": "Weight decay of the clients' SGD.",
    "server.detectors": "Stages that decide which clients are left out or barred.",
    "server.customizer": "Stage that decides which model each client trains from next.",
    "server.learning_rate": "Factor by which the server multiplies each step of the global model.",
    "server.momentum": "Momentum of the global model's steps.",
    "server.root.dataset": "Data set of the samples; see [data.md](data.md).",
    "server.public.dataset": "Data set of the samples; see [data.md](data.md).",
    "server.test.dataset": "Data set of the samples; see [data.md](data.md).",
    "phases.collecting.count.min": "Number of updates that suffice at a round's deadline.",
    "phases.collecting.count.max": "Number of updates that close a round before its deadline.",
    "phases.collecting.time.min": "Shortest time that a round stays open, in seconds.",
    "phases.collecting.time.max": "Seconds until the deadline.",
    "attackers.count": "Number of attackers in this group.",
}
"""The meanings of the keys that have no docstring of their own."""


def render() -> str:
    """The reference as Markdown."""
    parts = [OPENING, *("\n".join(_section(*table)) + "\n" for table in tables())]
    return "\n".join([*parts, "\n".join(_members()) + "\n", "\n".join(_sweeps()) + "\n"])


TableEntry = tuple[str, type[Table], Table | None]
"""The path of a table, the class of the table, and its default value."""


def tables(
    model: type[Table] = Experiment, path: str = "", default: Table | None = None
) -> Iterator[TableEntry]:
    """Every table of an experiment file, beginning with the top level (path "")."""
    yield path, model, default
    for key, field in model.model_fields.items():
        inner = _table(field.annotation)
        if inner is not None:
            value = getattr(default, key, field.default)
            usual = value if isinstance(value, Table) else None
            yield from tables(inner, f"{path}.{key}".lstrip("."), usual)


def meaning(path: str, key: str, model: type[Table]) -> str:
    """The meaning of a key: its docstring in the code, or else its entry in `MEANINGS`.

    If both are missing and the key's value is a table, the meaning is the docstring of the table's
    class.
    """
    inner = _table(model.model_fields[key].annotation)
    full = f"{path}.{key}".lstrip(".")
    text = _docstrings(model).get(key) or MEANINGS.get(full)
    if text is None and inner is not None:
        text = inspect.getdoc(inner)
    assert text, f"{full} has no docstring, and tools.reference.MEANINGS does not have it"
    return text.split("\n\n")[0].replace("\n", " ")


def _section(path: str, model: type[Table], default: Table | None) -> Iterator[str]:
    many = path == "attackers"
    head = "The file" if not path else f"`[[{path}]]`" if many else f"`[{path}]`"
    yield f"## {head}"
    yield ""
    if path:
        yield (inspect.getdoc(model) or "").split("\n\n")[0].replace("\n", " ")
        yield ""
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for key, field in model.model_fields.items():
        full = f"{path}.{key}".lstrip(".")
        usual = _default(field, getattr(default, key, field.get_default()))
        cells = (f"`{key}`", _value(full, field), usual, meaning(path, key, model))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(full: str, field: FieldInfo) -> str:
    if full in FAMILIES:
        article = "" if "list" in str(field.annotation) else "a "
        return f"{article}{FAMILIES[full].family}{'' if article else 's'}"
    if full in ALSO:
        return ALSO[full]
    inner = _table(field.annotation)
    if inner is not None:
        return f"tables `[[{full}]]`" if full == "attackers" else f"table `[{full}]`"
    kind = next(k for k in _arguments(field.annotation) if k is not type(None))
    if get_origin(kind) is Literal:
        return " or ".join(f'`"{choice}"`' for choice in get_args(kind))
    names = {int: "whole number", float: "number", bool: "`true` or `false`", str: "text"}
    names[dict[str, str]] = "table of texts"
    names[Select] = "table of lists of texts"
    assert kind in names, f"{full} takes {kind}: tools.reference does not know how to say that"
    bounds = []
    for bound in field.metadata:
        for kind_of, sign in ((Ge, "≥"), (Gt, ">"), (Le, "≤"), (Lt, "<")):
            if isinstance(bound, kind_of):
                limit = getattr(bound, kind_of.__name__.lower())
                bounds.append(f"{sign} {limit:,}")
    return ", ".join([names[kind], *bounds])


def _default(field: FieldInfo, default: Any) -> str:
    if field.is_required():
        return "must be given"
    if isinstance(default, Table):
        return "-"
    if isinstance(default, list):
        return ", ".join(f"`{member['name']}`" for member in default) or "none"
    if default in (None, "", {}):
        return "-"
    if isinstance(default, dict):
        return f"`{default['name']}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _members() -> Iterator[str]:
    yield "## Members"
    yield ""
    yield "[rules.md](rules.md) has the server's stages, and [attacks.md](attacks.md) has attacks."
    yield ""
    yield "| key | members |"
    yield "|---|---|"
    for path, family in FAMILIES.items():
        yield f"| `{path}` | {', '.join(f'`{name}`' for name in family.names())} |"


def _sweeps() -> Iterator[str]:
    yield "## `[sweep]`"
    yield ""
    yield from (
        (inspect.getdoc(sweep) or "")
        .replace("    [sweep]", "```toml\n[sweep]", 1)
        .replace("\n\nThe path of", "\n```\n\nThe path of", 1)
        .replace("\n    ", "\n")
        .splitlines()
    )
    yield ""
    yield "`rampart simulate` runs every point of a sweep."
    yield "`rampart up` refuses a file with a sweep."


def _table(annotation: Any) -> type[Table] | None:
    """The table class in an annotation: `T`, `T | None` or `list[T]`; None if there is none."""
    for kind in _arguments(annotation):
        inner = get_args(kind)[0] if get_origin(kind) is list else kind
        if inspect.isclass(inner) and issubclass(inner, Table):
            return inner
    return None


def _arguments(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


@cache
def _docstrings(model: type[Table]) -> dict[str, str]:
    """The docstrings of the fields of a class and of its base classes, keyed by field."""
    texts: dict[str, str] = {}
    for cls in reversed(model.__mro__[: model.__mro__.index(Table)]):
        (node,) = ast.parse(inspect.getsource(cls)).body
        assert isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                value = getattr(text.value, "value", None)
                if isinstance(value, str) and isinstance(field.target, ast.Name):
                    texts[field.target.id] = inspect.cleandoc(value)
    return texts


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
