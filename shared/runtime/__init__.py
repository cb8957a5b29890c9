"""Code for a process and its machine: startup, exit, logs, retries, CPUs, devices, files, tokens.

This package has code that any long-running program could use. Code that deals with rounds, rows or
models belongs elsewhere.
"""
