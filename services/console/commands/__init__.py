"""The command line of `rampart`: arguments, options and output.

There is one module per command or group of commands. A command checks its arguments, calls a
function that does the work, and prints the result. The functions that do the work belong in the
packages `launcher`, `studies`, `reports`, `html_report` or `tracking`. These packages do not import
this package.
"""
