"""The console: starts whole federations on this machine, and connects to running federations.

The package itself has two programs (`rampart` and the job that makes join tokens), federations for
tests, and code shared by its subpackages: the operator's connection, the live table, progress,
downloads and finished runs. The rest is in subpackages, such as `commands`, `launcher` and
`studies`.
"""
