"""The attacker: one process hosts hostile clients, and another lets them collude.

Hostile clients use the same protocol as honest clients. Colluding clients share their updates
through the second process, the cohort, without the aggregator. The attacks themselves belong in
`rampart_fl.shared.attacks`.
"""
