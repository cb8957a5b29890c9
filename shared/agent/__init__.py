"""The agent: an HTTP client for the aggregator, a client's identity, and its loop over rounds.

This package holds the code that takes part in a federation over HTTP. Messages and their encoding
belong in `rampart_fl.shared.protocol`, and local training belongs in `rampart_fl.shared.learning`.
"""
