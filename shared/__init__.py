"""Code that all services share: mathematics, learning, attacks, protocol, experiment files.

The services that use this code are in the package `services`. No module of `shared` imports
`services`.
"""

import os

# OpenMP's threads must not busy-wait, because they would take CPU time from other processes. OpenMP
# reads OMP_WAIT_POLICY when torch is loaded, so set the variable here, before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
