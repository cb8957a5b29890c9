"""The shared state of all processes: Redis with its atomic scripts, and the blob store.

The modules of this package read, parse and write state. They do not decide what to write: `api`
and `worker` do, and no module of this package imports either.
"""
