"""The statistics of the detectors `response` and `challenge`: challenges, answers, bets, memories.

No module of this package decides about a client. Verdicts belong in `robust/detectors`, and the
consequences of a verdict belong in `robust/eviction`.
"""
