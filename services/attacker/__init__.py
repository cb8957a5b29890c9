"""The attacker: one process hosts hostile clients, and another lets them collude.

Hostile clients use the same protocol as honest clients. Through the second process, the cohort,
they share their updates without the aggregator. The attacks themselves belong in
`rampart_fl.shared.attacks`.
"""
