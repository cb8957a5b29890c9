"""Ditto: a personal model that is pulled towards the global one."""

from pydantic import Field

from rampart_fl.shared.learning.personalizers import personalizers
from rampart_fl.shared.learning.personalizers.fedcap import FedCAP


@personalizers.register("ditto")
class Ditto(FedCAP):
    """min over v of L(v) + λ/2 |v - w|², interleaved with the upload's training per mini-batch.

    The step is FedCAP's; what differs is the server, which sends everyone the same w.
    """

    paper = "Li et al., Ditto: fair and robust federated learning through personalization, 2021"
    lambda_: float = Field(default=0.1, ge=0, alias="lambda")
    """Pull towards the global model."""
