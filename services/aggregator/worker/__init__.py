"""The worker: the lease, the phases of a round, the pool of updates and all computation on them.

Everything that needs torch belongs here. Nothing here serves HTTP: clients see what the worker
decides once it stands in `state`.
"""
