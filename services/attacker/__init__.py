"""The attacker: one process hosts hostile clients, and another process lets these clients collude.

Hostile clients use the same protocol as honest clients. Colluding clients share their updates not
through the aggregator, but through a separate process, the cohort. The attacks themselves belong in
`rampart_fl.shared.attacks`.
"""
