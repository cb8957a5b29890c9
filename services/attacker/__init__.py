"""The attacker: one process hosts hostile clients, and another process lets these clients collude.

Hostile clients use the same protocol as honest clients. They share their updates with colluders
through a separate process, the cohort. The aggregator takes no part in this exchange. The attacks
themselves belong in `rampart_fl.shared.attacks`.
"""
