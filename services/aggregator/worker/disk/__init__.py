"""Disk space: what a round will need, what a run may use, and which blobs may be deleted.

The rules on blobs and models that stay on disk belong in this package. Reading and writing blobs
does not: that is in `rampart_fl.services.aggregator.state.blobs`.
"""
