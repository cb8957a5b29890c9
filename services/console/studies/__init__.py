"""Simulated runs, sweeps and matrices: many experiments, their metrics, tables and plots.

A study that needs real services starts them through `launcher`. `commands` parses command lines.
"""
