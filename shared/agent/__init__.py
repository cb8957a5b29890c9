"""The agent: the HTTP client of an aggregator, a client's identity, and the loop of its rounds.

This package holds the code that takes part in a federation over HTTP. Messages and their encoding
belong in `rampart_fl.shared.protocol`, and local training belongs in `rampart_fl.shared.learning`.
"""
