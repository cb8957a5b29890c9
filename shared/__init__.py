"""Code that all services share: mathematics, learning, attacks, protocol, experiment files."""

import os

# Threads that spin while they wait take processor time from other threads and processes.
# OpenMP reads this variable when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
