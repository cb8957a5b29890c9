"""Starts and stops the real processes of one federation on this machine.

Simulations, which run in one process, and comparisons of several runs belong in `studies`.
"""
