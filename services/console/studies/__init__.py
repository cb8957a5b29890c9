"""Simulated runs, sweeps and matrices: many experiments, their metrics, tables and plots.

A study that needs real services starts them through `launcher`. The package `commands`
parses command lines.
"""
