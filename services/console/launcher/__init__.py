"""Starts and stops the real processes of one federation on this machine.

Simulations and comparisons of several runs belong in `studies`.
"""
