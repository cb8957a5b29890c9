"""Code that all services share: mathematics, learning, attacks, protocol, experiment files.

The processes that use this code belong in `services`. No module of this package imports `services`.
"""

import os

# A thread that busy-waits takes CPU time from other threads and processes. OpenMP reads
# OMP_WAIT_POLICY when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
