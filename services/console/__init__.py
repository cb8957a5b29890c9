"""The console: starts whole federations on this machine, and connects to running federations.

The package itself contains two programs: `rampart`, and the job that makes join tokens. It also
contains functions that start federations in tests. Its other modules contain code that its
subpackages share: downloads, finished runs, and the lock of a folder. The rest of the console is in
subpackages, such as `commands`, `launcher` and `studies`. Code that the aggregator or an agent also
needs belongs in `rampart_fl.shared`.
"""
