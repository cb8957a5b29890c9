"""Simulated runs, sweeps and matrices: many experiments, their figures, tables and pictures.

A study that needs real services asks `launcher` for them. Command lines are parsed in `commands`.
"""
