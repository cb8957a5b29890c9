"""How clients respond to movements of their starting models.

Legend: K numbers of a sketch.
"""

from dataclasses import dataclass, field
from math import isfinite

from torch import Tensor

NEAR = 1e-5
"""Two starting models are treated as equal if their distance is at most this multiple of the larger
norm."""


STIFF = 0.01
"""An upload reacts to a movement of its starting model only if the upload also changes enough. The
norm of the upload's change must be at least this multiple of the norm of the movement."""


PULLS = 0.3
"""If the correlation of a response is above this number, the change of the upload is attributed to
the model's movement. If the correlation is lower, noise in the upload can make the response to a
small movement seem strong. A strong response then does not count as overshooting."""


@dataclass(frozen=True)
class Response:
    """How a client's upload u reacted to a movement of the upload's starting model w.

    Here, Δu is u minus a moving average of the client's earlier uploads. Likewise, Δw is w minus
    the moving average of the models from which these earlier uploads started.

    Args:
        correlation: -<Δu, Δw> / (|Δu| |Δw|); positive if the client pulls the model back.
        strength: -<Δu, Δw> / |Δw|²; 1 if one upload undoes the whole movement.
        steady: whether |Δu| is between a lower and an upper limit, as in honest training. The lower
            limit is `STIFF` times |Δw|. The upper limit is the larger of |u| and the norm of the
            average of earlier uploads. If the correlation is above `PULLS`, the upper limit is at
            least |Δw|. If uploads are pure noise, `steady` is false, because |Δu| exceeds the norms
            of both u and the average upload. If a client always sends the same upload, `steady` is
            also false, because Δu is 0.
    """

    correlation: float
    strength: float
    steady: bool = True


@dataclass
class ClientAverages:
    """A client's averages over earlier rounds, and the bets on its responses.

    Args:
        wealth: the wealth of all bets so far; there is one number for each expected share of
            objections.
        correlation: correlation of the client's latest response; None before the first response.
        averages: the average sketch of the client's uploads, and the average sketch of the models
            that these uploads started from.
    """

    wealth: tuple[float, ...]
    correlation: float | None = None
    averages: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def respond(self, upload_K: Tensor, start_K: Tensor, memory: float) -> Response | None:
        """Computes the response of a new upload, then adds the upload to the averages.

        Args:
            upload_K, start_K: sketches of the upload and of the model that it started from.
            memory: decay factor of the averages, that is, the weight of the old averages.
        """
        response = None
        if self.averages is not None:
            response = respond(upload_K, start_K, *self.averages)
        if response is not None:
            self.correlation = response.correlation
        self.average(upload_K, start_K, memory)
        return response

    def average(self, upload_K: Tensor, start_K: Tensor, memory: float) -> None:
        """Adds an upload and its starting model to the averages: a' = m a + (1 - m) x.

        An upload that is not finite is left out.

        >>> import torch
        >>> past = ClientAverages(wealth=(0.0,))
        >>> for upload in (1.0, 2.0):
        ...     past.average(torch.tensor([upload]), torch.tensor([0.0]), memory=0.75)
        >>> past.averages[0].item()
        1.25
        """
        if not bool(upload_K.isfinite().all() and start_K.isfinite().all()):
            return
        if self.averages is None:
            self.averages = (upload_K, start_K)
        else:
            uploads_K, starts_K = self.averages
            self.averages = (
                memory * uploads_K + (1 - memory) * upload_K,
                memory * starts_K + (1 - memory) * start_K,
            )


def respond(upload_K: Tensor, start_K: Tensor, before_K: Tensor, from_K: Tensor) -> Response | None:
    """An upload's response to the movement of its starting model.

    The response is None if the starting model did not move, or if the upload is not finite.

    Args:
        upload_K, start_K: sketches of this upload and of the model that it started from.
        before_K, from_K: the average sketch of the client's earlier uploads, and the average sketch
            of the models that these uploads started from.

    >>> import torch
    >>> start, target = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 3.0])
    >>> respond(0.5 * (target - start), start, 0.5 * target, torch.zeros(2))
    Response(correlation=1.0, strength=0.5, steady=True)
    """
    way_K, change_K = start_K - from_K, upload_K - before_K
    way, change = float(way_K.norm()), float(change_K.norm())
    if not way > NEAR * max(float(start_K.norm()), float(from_K.norm())) or not isfinite(change):
        return None
    along = -float((change_K / max(change, 1e-300)) @ (way_K / way))
    most = max(way if along > PULLS else 0.0, float(upload_K.norm()), float(before_K.norm()))
    steady = STIFF * way <= change <= most
    strength = min(along * change / way, 1e300)
    return Response(max(-1.0, min(1.0, along)), strength, steady)
