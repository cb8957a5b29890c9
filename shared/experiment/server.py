"""The `server` table of an experiment: what the aggregator does with updates.

This module must not import torch, because the API role uses it without torch.
"""

from typing import ClassVar, Literal

from pydantic import Field

from rampart_fl.shared.experiment.eviction import Eviction
from rampart_fl.shared.experiment.tables import MemberSpec, MemberSpecs, Table


class ServerSamples(Table):
    """Samples that the server itself holds, converted to the model's input shape."""

    dataset: MemberSpec
    size: int = Field(default=100, ge=1)
    """Number of samples. The experiment's seed determines which samples the server gets; no client
    gets these samples."""


class PublicSamples(ServerSamples):
    """The public samples; the server loads their labels only if a stage needs labels."""

    size: int = Field(default=2000, ge=1)
    augmentation: Literal["none", "weak", "strong"] = "none"
    """How a rule that trains on the public samples augments these samples."""


class Server(Table):
    """The aggregator's settings: detectors, pipeline, server step and customizer."""

    later: ClassVar[frozenset[str]] = frozenset({"test", "summons"})

    rule: MemberSpecs = [{"name": "weighted_mean"}]
    """A rule, or a list: pre-aggregators and then a rule, applied in the listed order."""
    f: int | None = Field(default=None, ge=0)
    """Declared bound on the number of hostile clients; all stages use this bound. `f` also bounds
    the number of barred clients."""
    detectors: list[MemberSpec] = []
    eviction: Eviction = Eviction()
    summons: float = Field(default=1.0, ge=0, le=100)
    """Limit on the number of summoned clients per round, as a multiple of the number of drawn
    clients. The server *summons* a client if a detector awaits the client's next upload, but the
    client was not drawn. With 0, the server summons no client."""
    customizer: MemberSpec = {"name": "global_model"}
    learning_rate: float = Field(default=1.0, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    calibrate: bool = True
    """Whether the server converts every update to a change of the global model. This matters only
    if clients train from models other than the global model, as in FedCAP."""
    sample_cap: int = Field(default=10_000, ge=1, le=10**9)
    """Largest sample count that a client may claim; an operator may set another limit for each
    client."""
    root: ServerSamples | None = None
    """Trusted samples of the task; the server trains its own update on these samples in every
    round."""
    public: PublicSamples | None = None
    """Samples on which the server evaluates clients' models."""
    test: ServerSamples | None = None
    """The server's test samples for the task; the server tests every new global model on these
    samples, and no client holds them."""
