"""The worker: the lease, the phases of a round, the pool of updates and computation on updates.

Everything in the aggregator that needs torch belongs in this package. Nothing in it serves HTTP:
the worker writes its decisions to `state`, from which the API serves them to clients.
"""
