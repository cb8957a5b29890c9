"""Jobs that only one module may do, with exceptions that have a reason, and private interfaces."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tools.imports import MODULES, ROOT, imports, within

NODES = {module: [*ast.walk(ast.parse(path.read_text()))] for module, path in MODULES.items()}
"""The nodes of every module's syntax tree."""
CEILINGS = ROOT / "docs/decisions/0011-version-ceilings.md"
PUBLIC = {"_asdict", "_replace", "_exit"}
"""Names that Python documents, although they begin with an underscore."""


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a node gives to functions, classes, variables and attributes of `self`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield from [node.attr] if ast.unparse(node.value) in {"self", "cls"} else []


def _private_uses(node: ast.AST) -> Iterator[str]:
    """The private attributes, names and modules that a node reads or imports."""
    used = list[str]()
    if isinstance(node, ast.Attribute):
        used = [node.attr]
    elif isinstance(node, ast.Import | ast.ImportFrom):
        names = (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
        used = [part for name in names for part in name.split(".")]
    yield from (name for name in used if _private(name))


@pytest.mark.slow
def test_record_names_the_private_interfaces_of_other_packages() -> None:
    every = [node for nodes in NODES.values() for node in nodes]
    ours = {name for node in every for name in _defined(node)}
    used = {name for node in every for name in _private_uses(node)}
    named = set(re.findall(r"`(?:\w+\.)*(_\w+)`", CEILINGS.read_text()))
    assert used - ours - PUBLIC <= named
    assert named <= used, "the record names an interface that no code uses"
    nodes = ast.walk(ast.parse("import a._b\nfrom c import _d\ne._f"))
    assert {name for node in nodes for name in _private_uses(node)} == {"_b", "_d", "_f"}


ROUNDS_UP = {
    "rampart_fl.shared.rounding": "the place of the rules",
    "rampart_fl.shared.robust.evidence.response_options": "it rounds up the inverse of a share",
    "rampart_fl.services.console.html_report.charts": "an axis covers a range of floats, no count",
}
"""The modules that round up by themselves, with the reason."""


def _rounds_up(node: ast.AST) -> bool:
    """Whether a node is `ceil`, a floor that is negated twice, or `(a + b - 1) // b`."""
    if isinstance(node, ast.Attribute | ast.alias):
        return (node.attr if isinstance(node, ast.Attribute) else node.name) in {"ceil", "ceil_"}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_floor(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        signed = dict(_terms(node.left, 1))
        less_one = f"{node.right.value - 1}" if _is_int(node.right) else ""
        return (signed.get(ast.unparse(node.right)), signed.get("1")) == (1, -1) or (
            len(signed) > 1 and signed.get(less_one) == 1
        )
    return False


def _is_floor(node: ast.expr) -> bool:
    """Whether an expression is `a // b`, `floor(a)`, or a conversion of one of them."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return name == "floor" or (name in {"int", "float"} and any(map(_is_floor, node.args)))
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)


def _is_int(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _terms(node: ast.expr, sign: int) -> Iterator[tuple[str, int]]:
    """The terms of a sum, each with its sign."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, sign if isinstance(node.op, ast.Add) else -sign)
    else:
        yield ast.unparse(node), sign


UP = (
    *("-(-a // b)", "-(-a * c // b)", "-int(-x // 1)", "-math.floor(-x)", "-int(np.floor(-x))"),
    *("math.ceil(a)", "from math import ceil", "torch.ceil(a)", "a_N.ceil()"),
    *("(a + b - 1) // b", "(b - 1 + f(a)) // b", "(a + (b - 1)) // b", "(bits + 7) // 8"),
)
DOWN = ("-a // b", "(m - 1) // 2", "m // 2 + 1", "(a + b) // b", "(a - b + 1) // b")


def test_only_one_module_rounds_up() -> None:
    assert {m for m, nodes in NODES.items() if any(map(_rounds_up, nodes))} == set(ROUNDS_UP)
    for form in UP:
        assert any(map(_rounds_up, ast.walk(ast.parse(form)))), form
    for form in DOWN:
        assert not any(map(_rounds_up, ast.walk(ast.parse(form)))), form


SERVICES = "rampart_fl.services"
WRITES_DIRECTLY = {
    "rampart_fl.shared.runtime.durable": "the place of durable writes",
    "rampart_fl.shared.agent.activity_log": "it appends lines, syncs them, and rotates the files",
    "rampart_fl.shared.agent.identity": "the file is a lock without content",
    "rampart_fl.shared.learning.data.datasets.files": "numpy writes to the path of `replacing`",
    "rampart_fl.shared.simulation.checkpoint": "safetensors writes to the path of `replacing`",
    f"{SERVICES}.aggregator.state.blobs": "`durable.place` moves the written file",
    f"{SERVICES}.aggregator.state.segments": "`durable.place` moves the written file",
    f"{SERVICES}.aggregator.state.shared_blob": "processes share the file as memory",
    f"{SERVICES}.console.launcher.client_processes": "its process reads the join tokens at once",
    f"{SERVICES}.console.launcher.federation_folder": "process ids are of no use after a crash",
    f"{SERVICES}.console.launcher.local_federation": "the aggregator reads the file at once",
    f"{SERVICES}.console.launcher.servers": "Redis reads its settings at once",
}
"""The modules that write files without `rampart_fl.shared.runtime.durable`, with the reason."""
SAVERS = re.compile(r"(?:np|numpy)\.save\w*|torch\.save|(?:\w+\.)*(?:save_file|tofile)")
"""Matches functions of numpy, torch and safetensors that write a file."""
MODES = re.compile(r"[rb]*[wx+][wxb+t]*")
"""Matches the modes of `open` that replace a file, or change the content that it has."""


def _writes(node: ast.AST) -> bool:
    """Whether a node writes a whole file, or gives a file another name."""
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    texts = [one.value for one in _arguments(node) if isinstance(one, ast.Constant)]
    if name in {"open", "fdopen"}:
        return any(isinstance(text, str) and MODES.fullmatch(text) for text in texts)
    if name in {"rename", "replace"}:  # The method `replace` of a text has two arguments.
        return owner == "os" or (bool(owner) and len(node.args) == 1)
    saves = SAVERS.fullmatch(ast.unparse(node.func)) is not None
    return saves or name in {"write_text", "write_bytes"}


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


WRITES = (
    *('path.write_text("a")', 'open(path, "w")', 'path.open("xb")', 'open(path, mode="wb")'),
    *('os.fdopen(3, "w", encoding="utf-8")', 'path.open("r+b")', "path.rename(new)"),
    *("path.replace(new)", "os.replace(a, b)", "os.rename(a, b)", "np.save(path, a)"),
    *("np.savez(path, a=1)", "torch.save(a, path)", "save_file(tensors, path)"),
)
READS = (
    *(
        'path.open("rb")',
        "open(path)",
        'path.open("a", encoding="utf-8")',
        'text.replace("w", "x")',
    ),
    *("durable.replace(path, pieces)", "moment.replace(tzinfo=zone)", "replace(row, a=1)"),
)


def test_results_are_written_durably() -> None:
    assert {m for m, nodes in NODES.items() if any(map(_writes, nodes))} == set(WRITES_DIRECTLY)
    for form in WRITES:
        assert any(map(_writes, ast.walk(ast.parse(form)))), form
    for form in READS:
        assert not any(map(_writes, ast.walk(ast.parse(form)))), form


def test_only_the_retry_policy_imports_tenacity() -> None:
    users = {m for m in MODULES for imported, _ in imports(m) if within(imported, {"tenacity"})}
    assert users == {"rampart_fl.shared.runtime.retries"}


UNPACKS = {
    "rampart_fl.shared.protocol.wire": "the place of headers",
    f"{SERVICES}.aggregator.state.segments": "the index of a segment is not a safetensors header",
    "rampart_fl.shared.robust.rules.minimum_diameter_averaging": "it reads bits as a number",
}
"""The modules that read little-endian integers, with the reason."""


def _reads_length(node: ast.AST) -> bool:
    """Whether a node reads a little-endian integer, such as the length of a safetensors header."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    given = {str(one.value) for one in _arguments(node) if isinstance(one, ast.Constant)}
    reads = node.func.attr in {"Struct", "unpack", "unpack_from", "from_bytes"}
    return reads and bool(given & {"<Q", "<q", "little"})


def test_only_one_module_parses_headers() -> None:
    assert {m for m, nodes in NODES.items() if any(map(_reads_length, nodes))} == set(UNPACKS)
    for form in ('struct.unpack("<Q", data)', 'int.from_bytes(data[:8], byteorder="little")'):
        assert any(map(_reads_length, ast.walk(ast.parse(form)))), form
