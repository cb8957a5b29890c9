"""What every Rampart service shares: mathematics, learning, attacks, protocol, experiment files."""

import os

# Threads that spin while they wait take the processors from all else that runs, and from
# each other. OpenMP reads this as torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
