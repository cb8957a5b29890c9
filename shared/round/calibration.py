"""The two models that calibrate an upload: the start of its training, and the base of its row."""

from typing import Protocol, TypeVar

Model = TypeVar("Model")


class ServedModels(Protocol[Model]):
    """The models that clients received: tensors in a simulation, digests in a worker."""

    def reference(self) -> Model:
        """The global model of the round."""

    def own(self, client: str) -> Model:
        """The model from which the client trains if the client is not challenged."""

    def challenged(self, client: str) -> Model | None:
        """The challenged model from which the client trains; None if there is no challenge."""

    def same(self, one: Model, other: Model) -> bool:
        """Whether `one` and `other` are the same model."""


def origin(served: ServedModels[Model], client: str, started: Model) -> Model:
    """The model to which an upload is added.

    An upload is added to the model from which the client trained. If the client trained from a
    challenged model, the upload is added to the same model without the challenge. A challenge that
    stayed in the model would move the row even if the client's upload does not depend on the
    challenge.
    """
    challenged = served.challenged(client)
    unchanged = challenged is None or not served.same(started, challenged)
    return started if unchanged else served.own(client)


def offset(
    served: ServedModels[Model], client: str, started: Model, isolates: bool = False
) -> tuple[Model, Model] | None:
    """The models (start, base) of a row `(start - base) + upload`; None if both models are equal.

    The start is the `origin` of the upload. If groups of clients are isolated, the base is the
    client's own model; otherwise, the base is the global model.

    Args:
        served: the models that the server sent to clients.
        client: the client's id.
        started: the model that the client trained from.
        isolates: whether groups of clients are isolated (`Customizer.isolates`).
    """
    start = origin(served, client, started)
    base = served.own(client) if isolates else served.reference()
    return None if served.same(start, base) else (start, base)
