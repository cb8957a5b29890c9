"""The client agent: hosts honest clients, each with its own identity, data and state.

This package holds the command and the interface for clients of your own. The loop of a client's
rounds belongs in `rampart_fl.shared.agent`.
"""
