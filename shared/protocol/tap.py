"""Names of the vectors in a response of the red team's tap.

A response also contains honest updates, which are named by the clients' ids. No id contains a
slash, so no client can have one of the names below.
"""

REFERENCE = "/reference"
"""Name of the reference model: a calibrated update is the trained model minus this model."""
STARTED = "/started/"
"""Prefix of a name: `/started/<client>` is the model from which the client trained."""
