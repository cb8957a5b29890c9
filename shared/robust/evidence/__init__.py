"""The statistics of the detectors `response` and `challenge`: challenges, answers, bets, memories.

Nothing here decides about a client. Verdicts belong in `robust/detectors`, and what a verdict does
to a client belongs in `robust/eviction`.
"""
