"""The protocol between the aggregator and its clients: messages, wire format and client.

No module of this package needs torch.
"""
