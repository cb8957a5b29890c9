"""Layers that torch does not provide as modules.

Legend: B samples, L tokens of a text, E features of a token.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class TextEmbedding(nn.Module):
    """Divides the sum of a text's n token vectors by √n; token 0 is padding and is ignored.

    The result has about the norm of one vector, whatever the length of the text. The mean of the
    vectors would shrink with the length of the text, and the gradients of the vectors would shrink
    even faster.

    Args:
        tokens: number of token ids, padding included.
        features: length of a token's vector.

    >>> layer = TextEmbedding(3, 2)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]])})
    >>> layer(torch.tensor([[1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])).tolist()
    [[2.0, 4.0], [0.0, 0.0]]
    """

    def __init__(self, tokens: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(tokens, features))
        nn.init.normal_(self.weight, std=features**-0.5)

    def forward(self, x_BL: Tensor) -> Tensor:
        """Maps token ids (B, L) of any dtype to features (B, E)."""
        return text_embedding(x_BL.long(), x_BL.long(), self.weight)


def text_embedding(ids: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """Divides the sum of the n token vectors (rows of `weight`) by √n; leaves out padding."""
    inside = (ids != 0).unsqueeze(-1).to(weight.dtype)
    total = (functional.embedding(rows, weight) * inside).sum(-2)
    return total / inside.sum(-2).clamp(min=1).sqrt()


class ResidualBlock(nn.Module):
    """Adds the output of the shortcut to the output of the body.

    Args:
        body: the module of the main branch.
        shortcut: the module of the second branch; the identity by default.
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the outputs of body and shortcut; both outputs must have the same shape."""
        total: Tensor = self.shortcut(x) + self.body(x)
        return total
