"""The protocol between the aggregator and its clients: messages, wire format and refusals.

No module of this package needs torch, and no module opens a connection.
"""
