"""The command line of `rampart`: arguments, options and output; one module per command or group.

A command checks its arguments, calls a function that does the work, and prints the result. The
functions that do the work belong in `launcher` or `studies`, which do not import this package.
"""
