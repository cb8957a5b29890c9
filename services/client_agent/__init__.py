"""The client agent: hosts honest clients, each with its own identity, data and state.

This package contains the agent's command, and the interface for your own clients. A client's main
loop belongs in `rampart_fl.shared.agent`.
"""
