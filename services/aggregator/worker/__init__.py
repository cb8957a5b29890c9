"""The worker: the lease, the phases of a round, the pool of updates, and computations on updates.

All code of the aggregator that needs torch belongs in this package. The package contains no HTTP
server. The worker writes its decisions to `state`, and the API serves these decisions to clients.
"""
