"""The processes of Rampart: aggregator, client agent, attacker, console.

Each subpackage is one kind of process. Code that two of them need belongs in `rampart_fl.shared`.
"""
