"""The protocol between the aggregator and its clients: messages, wire format and refusals.

No module of this package needs torch, and no module opens a connection. Connections belong in
`rampart_fl.shared.agent` and in the services, and the fields of experiment files belong in
`rampart_fl.shared.experiment`.
"""
