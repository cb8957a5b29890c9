"""Benchmarks of speed and quality, compared with lower bounds and with other libraries.

A check that passes or fails belongs in `tests`. The wheel does not contain this package.
"""
