"""The command line: arguments, options and output of `rampart`, one module per command or group.

A command checks its arguments, calls what does the work and prints the result. The work itself
belongs in `launcher` or `studies`, which import nothing from here.
"""
