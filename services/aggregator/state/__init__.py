"""The shared state of all processes: Redis with its atomic scripts, and the blob store.

A module here reads and writes state, and parses what it reads. It does not decide what to write:
that belongs in `api` or `worker`, and neither is imported here.
"""
