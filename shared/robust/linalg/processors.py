"""Processor levels for which kernels can be compiled, and the levels that a machine supports."""

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Level:
    """A processor level, that is, a set of instructions.

    Args:
        machine: the architecture, as `platform.machine()` names it.
        flags: the compiler's options for processors of this level.
        features: the features that a processor must have, named as in /proc/cpuinfo.
    """

    machine: str
    flags: tuple[str, ...]
    features: frozenset[str]


V3 = frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"])
LEVELS = {
    "x86-64-v4": Level(
        "x86_64",
        ("-march=x86-64-v4", "-mprefer-vector-width=512"),
        V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    ),
    "x86-64-v3": Level("x86_64", ("-march=x86-64-v3",), V3),
    "arm64": Level("aarch64", ("-march=armv8-a",), frozenset({"asimd", "fp"})),
}
"""All levels; the levels of each architecture are listed from best to worst."""


def features() -> frozenset[str]:
    """The features of this machine's processor; empty if the system does not report them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    words = [line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))]
    return frozenset(words[0].split()) if words else frozenset()


def levels(machine: str | None = None, has: frozenset[str] | None = None) -> list[str]:
    """The levels that a processor supports, best first.

    Args:
        machine: the processor's architecture; by default, the architecture of this machine.
        has: the processor's features; by default, the features of this machine's processor.

    >>> levels("x86_64", V3 | {"sse4_2"})
    ['x86-64-v3']
    >>> levels("aarch64", frozenset({"fp", "asimd", "sve"}))
    ['arm64']
    >>> levels("riscv64", frozenset())
    []
    """
    machine = platform.machine() if machine is None else machine
    has = features() if has is None else has
    return [
        name for name, level in LEVELS.items() if level.machine == machine and level.features <= has
    ]
