"""The console: starts whole federations on this machine, and talks to running ones.

The modules here are programs of their own (`rampart`, the job that makes join tokens), federations
for tests, and what all rooms share: the operator's connection and the live table. The rest stands
in `commands`, `launcher` and `studies`.
"""
