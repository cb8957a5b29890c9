"""The process and its machine: start and end, logs, processors, devices, files, tokens.

Here belongs what any long-running program would need. What knows of rounds, rows or models belongs
elsewhere.
"""
