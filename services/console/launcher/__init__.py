"""Starts and stops the real processes of one federation on this machine.

Runs in one process belong in `studies`, and so does whatever compares several runs.
"""
