"""Ditto: a personal model that is pulled towards the global model."""

from pydantic import Field

from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.learning.training.personalizers.fedcap import FedCAP


@personalizers.register("ditto")
class Ditto(FedCAP):
    """Trains a personal model that is pulled towards the global model.

    The personal model v minimizes L(v) + λ/2 |v - w|², where L is the client's mean loss, and w is
    the global model.

    Each mini-batch trains both v and the uploaded model. Clients train as in FedCAP, but the server
    sends the same global model w to every client.
    """

    paper = "Li et al., Ditto: fair and robust federated learning through personalization, 2021"
    lambda_: float = Field(default=0.1, ge=0, alias="lambda")
    """Strength λ of the pull towards the global model."""
