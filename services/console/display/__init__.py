"""How the console shows things: tables, progress, numbers, and the terminal itself.

Code in this package knows nothing of aggregators and studies, except for the live table of a run.
What a command prints belongs in the command's own module.
"""
