"""The processes of Rampart: aggregator, client agent, attacker, console.

Code that more than one subpackage needs belongs in `rampart_fl.shared`.
"""
