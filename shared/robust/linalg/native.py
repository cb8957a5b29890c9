"""The compiled kernels, either shipped with the container image or compiled on this machine.

A container image contains kernels for several processor levels (`prebuild`), so it needs no
compiler. Outside an image, the machine's C compiler builds the kernels once, and a cache keeps
them.

`RAMPART_KERNELS` selects the kernels. With `auto` (the default), Rampart loads the image's kernels
for this processor. If there are none, Rampart compiles the kernels, or loads them from the cache.
If loading or compiling fails, Rampart uses torch. With `native`, Rampart raises an error if there
are no compiled kernels. With `torch`, Rampart always uses torch. `backend()` says which kernels are
in use and why.
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
from rampart_fl.shared.robust.linalg import processors
from rampart_fl.shared.rounding import ceil_div
from rampart_fl.shared.runtime import caches, durable

SOURCE = Path(__file__).with_name("kernels.c")
PREBUILT = SOURCE.with_name("prebuilt")
"""Folder of the kernels that were compiled in advance; only container images have this folder."""
PLAIN = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-pthread")
FAST = ("-fno-signed-zeros", "-ffinite-math-only", "-fno-math-errno", "-fno-trapping-math")
TUNED = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ("-mcpu=native",), ())
SECONDS = 60
"""Time limit for one compilation."""
PARTS = 64
"""Largest number of parts into which the columns are split. The number of parts does not depend on
the number of threads, so sums are bit-for-bit equal for any number of threads."""
SHORTEST = 1024
"""Smallest number of columns in a part, as in `kernels.c`. A block with few columns therefore has
fewer than `PARTS` parts."""
PARTIAL = 1 << 23
"""Largest number of partial sums in all parts together. If a kernel computes many sums, the columns
are split into fewer parts."""
ELEMENT = {torch.float32: "float", torch.float64: "double"}
PAIRS = (("float", "float"), ("float", "double"), ("double", "double"))
"""Pairs of element types: the type of the rows, and a type in which their products are computed."""

_lock = threading.Lock()


class WorkSplit(ctypes.Structure):
    """How a kernel's work is divided: the number of threads and the number of parts."""

    _fields_ = [
        ("threads", ctypes.c_int),
        ("parts", ctypes.c_int),
        ("parallel", ctypes.c_void_p),
    ]


class Kernels:
    """The functions of one compiled library, which `call` runs by name."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def call(
        self, name: str, rows: Sequence[Tensor], width: int, *arguments: object, sums: int
    ) -> Tensor:
        """A kernel's sums (float64) over all columns, computed by as many threads as torch uses.

        Args:
            rows: the contiguous rows to read.
            width: number of columns.
            arguments: the kernel's further arguments.
            sums: number of sums that the kernel computes. If this number is 0 (there are no rows),
                the kernel does not run.
        Raises:
            MemoryError: the kernel could not allocate its buffers.
        """
        if sums == 0:
            return torch.zeros(0, dtype=torch.float64)
        parts = max(1, min(PARTS, PARTIAL // sums, ceil_div(width, SHORTEST)))
        crew = WorkSplit(threads(), parts, _parallel())
        partial = torch.zeros(parts, sums, dtype=torch.float64)
        given = (pointers(rows), size(len(rows)), size(width), *arguments, address(partial))
        # Attribute access to a library always returns the same function object. Subscript access
        # would create a new function object and a reference cycle each time.
        kernel = getattr(self._library, f"rampart_{name}")
        if kernel(*given, ctypes.byref(crew)):
            raise MemoryError(f"kernel {name} could not allocate its buffers")
        return partial[0]


def choice() -> str:
    """The value of `RAMPART_KERNELS`, after validation."""
    value = os.environ.get("RAMPART_KERNELS", "auto")
    if value not in ("auto", "native", "torch"):
        raise ConfigurationError(f"RAMPART_KERNELS must be auto, native or torch, not {value!r}")
    return value


def backend() -> str:
    """The kernels that are in use on the CPU: `native`, or `torch: ` followed by the reason."""
    kernels, reason = _load("float", "float")
    return "native" if kernels else f"torch: {reason}"


def kernels_for(dtype: torch.dtype, device: torch.device, wide: bool = False) -> Kernels | None:
    """The kernels for rows with this dtype and device; None if torch must be used instead.

    Args:
        wide: whether products are computed in float64 regardless of the rows' dtype.
    """
    if device.type != "cpu" or dtype not in ELEMENT:
        return None
    element = ELEMENT[dtype]
    return _load(element, "double" if wide else element)[0]


def threads() -> int:
    """Number of threads that a pass may use: as many as torch uses."""
    return torch.get_num_threads()


@functools.cache
def _parallel() -> int | None:
    """Address of `GOMP_parallel` in torch's own copy of libgomp; None if there is no such copy."""
    for path in Path(torch.__file__).with_name("lib").glob("libgomp*.so*"):
        try:
            entry = ctypes.CDLL(str(path)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        return ctypes.cast(entry, ctypes.c_void_p).value
    return None


@functools.cache
def compiler() -> str | None:
    """The path of a C compiler; None if no compiler is installed."""
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


def prebuilt_path(level: str, real: str, wide: str) -> Path:
    """Path of the kernels that were compiled in advance for a processor level."""
    source = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    return PREBUILT / f"kernels-{level}-{real}-{wide}-{source[:12]}.so"


def _library(real: str, wide: str) -> Path:
    for level in processors.levels():
        if (path := prebuilt_path(level, real, wide)).exists():
            return path
    command = compiler()
    if command is None or not hasattr(os, "getuid"):
        raise OSError("no C compiler is on the path")
    key = hashlib.sha256(SOURCE.read_bytes())
    for part in (command, real, wide, repr((PLAIN, FAST, TUNED)), _processor()):
        key.update(part.encode())
    path = _cache() / f"kernels-{key.hexdigest()[:20]}.so"
    if not path.exists():
        compile_library(command, path, real, wide)
    return path


def compile_library(
    compiler: str, path: Path, real: str, wide: str, flags: Sequence[tuple[str, ...]] = TUNED
) -> None:
    """Compiles the kernels.

    Args:
        compiler: the compiler's path.
        path: the path to which the library is written.
        real: C type of the rows.
        wide: C type in which products are computed.
        flags: alternative sets of compiler options that select the processor. The function tries
            the sets in order until a compilation succeeds.
    Raises:
        OSError: the compiler failed with every set of options.
    """
    defines = (f"-DREAL={real}", f"-DWIDE={wide}")
    with durable.replacing(path, several=True) as built:
        for tuned in flags:
            command = [compiler, *PLAIN, *FAST, *tuned, *defines, str(SOURCE), "-o", str(built)]
            done = subprocess.run(  # noqa: S603 - the compiler runs without a shell
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            if done.returncode == 0:
                return
        raise OSError(f"{compiler} failed: {done.stderr.strip()[-300:]}")


def _processor() -> str:
    """The processor features that determine the effect of `-march=native`.

    The features are part of the cache key, so that a machine never loads a library that was built
    for another processor.
    """
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    lines = text.splitlines()
    features = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return platform.machine() + "".join(sorted(features))


def _cache() -> Path:
    """A folder that only this user can write to, because code is loaded from this folder."""
    for folder in (caches.folder(), Path(tempfile.gettempdir()) / f"rampart-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = folder.lstat()
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        private = stat.S_ISDIR(info.st_mode) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if private and info.st_uid == os.getuid():
            return folder
    return Path(tempfile.mkdtemp(prefix="rampart-"))


def pointers(rows: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of contiguous rows, as an array for C."""
    return (ctypes.c_void_p * len(rows))(*(row.data_ptr() for row in rows))


def address(tensor: Tensor) -> ctypes.c_void_p:
    """The address of a contiguous tensor."""
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def size(number: int) -> ctypes.c_int64:
    """A number as a C integer."""
    return ctypes.c_int64(number)


def real(number: float) -> ctypes.c_double:
    """A number as a C double."""
    return ctypes.c_double(number)
