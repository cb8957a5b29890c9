"""The attacker: hosts hostile clients, which use the honest clients' protocol, and a cohort.

The cohort lets hostile clients share their updates without the aggregator. The attacks themselves
belong in `rampart_fl.shared.attacks`.
"""
