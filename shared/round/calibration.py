"""The two models that calibrate an upload: the start of its training, and the base of its row."""

from typing import Protocol, TypeVar

Model = TypeVar("Model")


class ServedModels(Protocol[Model]):
    """The models that clients received: as tensors in a simulation, as digests in a worker."""

    def reference(self) -> Model:
        """The global model of the round."""

    def own(self, client: str) -> Model:
        """The model from which the client trains if the client is not challenged."""

    def same(self, one: Model, other: Model) -> bool:
        """Whether `one` and `other` are the same model."""


def offset(
    served: ServedModels[Model], client: str, start: Model, isolates: bool = False
) -> tuple[Model, Model] | None:
    """The models (start, base) of a row `(start - base) + upload`; None if both models are equal.

    If the client trained from a challenged model, the start is the same model without the
    challenge. A challenge in the start would change the client's row. It would change the row even
    if the client did not train from the challenged model. If groups of clients are isolated, the
    base is the client's own model; otherwise, the base is the global model.

    Args:
        served: the models that the server sent to clients.
        client: the client's id.
        start: the model that the client trained from; if this model was challenged, the same model
            without the challenge.
        isolates: whether groups of clients are isolated (`Customizer.isolates`).
    """
    base = served.own(client) if isolates else served.reference()
    return None if served.same(start, base) else (start, base)
