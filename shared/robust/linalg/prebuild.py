"""`python -m rampart_fl.shared.robust.linalg.prebuild`: compiles the kernels in advance.

If the build of a container image runs this command, the image needs no compiler at run time. The
command writes libraries to a folder next to `kernels.c`. For each processor level of this machine's
architecture, there is one library for each pair of element types.
"""

import platform
import sys

from rampart_fl.shared.robust.linalg import native, processors


def main() -> int:
    """Compiles every library; fails without a compiler, or if the architecture has no levels."""
    compiler = native.compiler()
    if compiler is None:
        sys.stderr.write("error: no C compiler is on the path\n")
        return 1
    machine = platform.machine()
    names = [name for name, level in processors.LEVELS.items() if level.machine == machine]
    if not names:
        sys.stderr.write(f"error: there are no processor levels for {machine}\n")
        return 1
    native.PREBUILT.mkdir(exist_ok=True)
    for name in names:
        for real, wide in native.PAIRS:
            path = native.prebuilt_path(name, real, wide)
            native.compile_library(compiler, path, real, wide, (processors.LEVELS[name].flags,))
            path.chmod(0o644)
            sys.stdout.write(f"{path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
