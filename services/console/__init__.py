"""The console: starts whole federations on this machine, and connects to running federations.

The package itself has two programs (`rampart` and the job that makes join tokens), federations for
tests, and code that its subpackages share: the operator's connection, the live table, progress,
downloads and finished runs. Everything else is in the subpackages `commands`, `launcher`,
`studies`, `html_report` and `tracking`.
"""
