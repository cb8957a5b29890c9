"""The compiled kernels: built once with the machine's C compiler, kept in a cache, or done without.

`RAMPART_KERNELS` decides: `auto` (compile where a compiler works, the default), `native` (fail
without one) or `torch` (never compile). `backend()` tells what is in use and why.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime import caches, durable

SOURCE = Path(__file__).with_name("kernels.c")
PLAIN = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-pthread")
FAST = ("-fno-signed-zeros", "-ffinite-math-only", "-fno-math-errno", "-fno-trapping-math")
TUNED = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ("-mcpu=native",), ())
SECONDS = 60
"""Most time that one compilation may take."""
PARTS = 64
"""Parts that the columns are split into, whatever the number of threads: sums keep their bits."""
PARTIAL = 1 << 23
"""Most numbers that the sums of all parts may hold together."""
ELEMENT = {torch.float32: "float", torch.float64: "double"}

_lock = threading.Lock()


class Crew(ctypes.Structure):
    """Who does the work of a kernel, and in how many parts."""

    _fields_ = [
        ("threads", ctypes.c_int),
        ("parts", ctypes.c_int),
        ("parallel", ctypes.c_void_p),
    ]


class Kernels:
    """The functions of one built library, by name, for one element type."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def call(self, name: str, *arguments: object, sums: int | None = None) -> Tensor:
        """Runs one kernel over as many threads as torch uses.

        Args:
            sums: how many sums it adds up, if any; its parts' sums are made here and those of
                all columns are returned (float64). Of no rows there are none: nothing runs.
        Raises:
            MemoryError: its buffers could not be had.
        """
        if sums == 0:
            return torch.zeros(0, dtype=torch.float64)
        crew = Crew(threads(), max(1, min(PARTS, PARTIAL // (sums or 1))), _parallel())
        partial = torch.zeros(crew.parts if sums else 0, sums or 0, dtype=torch.float64)
        last = (address(partial),) if sums else ()
        if self._library[f"rampart_{name}"](*arguments, *last, ctypes.byref(crew)):
            raise MemoryError(f"kernel {name} is short of memory")
        return partial[0] if sums else partial


def choice() -> str:
    """The value of `RAMPART_KERNELS`, checked."""
    value = os.environ.get("RAMPART_KERNELS", "auto")
    if value not in ("auto", "native", "torch"):
        raise ConfigurationError(f"RAMPART_KERNELS is auto, native or torch, not {value!r}")
    return value


def backend() -> str:
    """Which kernels the CPU path uses: `native`, or `torch: ` and the reason."""
    kernels, reason = _load("float", "float")
    return "native" if kernels else f"torch: {reason}"


def kernels_for(dtype: torch.dtype, device: torch.device, wide: bool = False) -> Kernels | None:
    """The kernels for rows of this type, or None where torch has to do.

    Args:
        wide: products in float64 whatever the rows hold.
    """
    if device.type != "cpu" or dtype not in ELEMENT:
        return None
    element = ELEMENT[dtype]
    return _load(element, "double" if wide else element)[0]


def threads() -> int:
    """How many threads a pass may use: as many as torch does."""
    return torch.get_num_threads()


@functools.cache
def _parallel() -> int | None:
    """Where libgomp, as torch has loaded it, starts its threads; None without one."""
    for path in Path(torch.__file__).with_name("lib").glob("libgomp*.so*"):
        try:
            entry = ctypes.CDLL(str(path)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        return ctypes.cast(entry, ctypes.c_void_p).value
    return None


@functools.cache
def _compiler() -> str | None:
    return next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def _load(real: str, wide: str) -> tuple[Kernels | None, str]:
    with _lock:
        return _build(real, wide, choice())


@functools.cache
def _build(real: str, wide: str, chosen: str) -> tuple[Kernels | None, str]:
    if chosen == "torch":
        return None, "RAMPART_KERNELS=torch"
    try:
        return Kernels(_library(real, wide)), ""
    except (OSError, subprocess.SubprocessError) as error:
        if chosen == "native":
            raise ConfigurationError(f"RAMPART_KERNELS=native, but {error}") from error
        return None, str(error)


def _library(real: str, wide: str) -> Path:
    compiler = _compiler()
    if compiler is None or not hasattr(os, "getuid"):
        raise OSError("no C compiler is on the path")
    key = hashlib.sha256(SOURCE.read_bytes())
    for part in (compiler, real, wide, repr((PLAIN, FAST, TUNED)), _processor()):
        key.update(part.encode())
    path = _cache() / f"kernels-{key.hexdigest()[:20]}.so"
    if not path.exists():
        _compile(compiler, path, [f"-DREAL={real}", f"-DWIDE={wide}"])
    return path


def _compile(compiler: str, path: Path, defines: Sequence[str]) -> None:
    with durable.replacing(path, several=True) as built:
        for tuned in TUNED:
            command = [compiler, *PLAIN, *FAST, *tuned, *defines, str(SOURCE), "-o", str(built)]
            done = subprocess.run(  # noqa: S603 - a compiler by its path, never a shell
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            if done.returncode == 0:
                return
        raise OSError(f"{compiler} failed: {done.stderr.strip()[-300:]}")


def _processor() -> str:
    """What `-march=native` depends on, so that a shared cache never serves another machine."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    lines = text.splitlines()
    features = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return platform.machine() + "".join(sorted(features))


def _cache() -> Path:
    """A folder that only this user can write to: code is loaded from it."""
    for folder in (caches.folder(), Path(tempfile.gettempdir()) / f"rampart-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if private and found.st_uid == os.getuid():
            return folder
    return Path(tempfile.mkdtemp(prefix="rampart-"))


def pointers(rows: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of contiguous rows, as C takes them."""
    return (ctypes.c_void_p * len(rows))(*(row.data_ptr() for row in rows))


def address(tensor: Tensor) -> ctypes.c_void_p:
    """Where a contiguous tensor lies."""
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def size(number: int) -> ctypes.c_int64:
    """A count as C takes it."""
    return ctypes.c_int64(number)
