"""Simulated runs, sweeps and matrices: many experiments, their figures, tables and pictures.

A study that needs real services starts them through `launcher`. `commands` parses command lines.
"""
