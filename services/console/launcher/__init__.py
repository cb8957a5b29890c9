"""Starts and stops the real processes of one federation on this machine.

Simulated runs, sweeps and matrices belong in `studies`.
"""
