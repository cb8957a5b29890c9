"""Simulated runs, sweeps and matrices: many experiments, their metrics, tables and plots.

A study that needs real services starts them through `launcher`. The package `commands` parses
command lines. Code that simulates federations belongs in `rampart_fl.shared.simulation`, and HTML
pages belong in `html_report`.
"""
