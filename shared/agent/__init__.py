"""The agent: an HTTP client for the aggregator, a client's identity, and the loop over rounds.

This package contains everything that a process needs to take part in a federation over HTTP.
Messages and their encoding belong in `rampart_fl.shared.protocol`, and local training belongs in
`rampart_fl.shared.learning`.
"""
