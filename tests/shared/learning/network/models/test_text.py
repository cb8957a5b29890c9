"""The text model: padding and token order do not matter, and stacked models do not mix."""

import torch
from torch.nn import functional

from rampart_fl.shared.learning.network.models.text import Text
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import unflatten


def test_output_does_not_depend_on_padding_or_token_order() -> None:
    module = Text(vocabulary=20, features=3).build((5,), 2)
    one = module(torch.tensor([[4, 7, 4, 0, 0]]))
    torch.testing.assert_close(one, module(torch.tensor([[0, 7, 0, 4, 4]])))
    assert not torch.allclose(one, module(torch.tensor([[7, 7, 4, 0, 0]])))


def test_stacked_models_use_their_own_embeddings() -> None:
    network = Stacked(Text(vocabulary=20, features=3, hidden=[4]).build((5,), 2).double())
    draws = torch.Generator().manual_seed(1)
    models_KD = torch.randn(3, network.spec.dim, generator=draws, dtype=torch.float64)
    ids_KBL = torch.randint(20, (3, 6, 5), generator=draws)
    ids_KBL[0, 0] = 0  # a text of padding alone
    logits = network.logits(models_KD, ids_KBL.double())
    for k in range(3):
        own = unflatten(models_KD[k], network.spec)
        for b in range(6):
            tokens = [t for t in ids_KBL[k, b].tolist() if t]
            total_E = sum((own["embedding.weight"][t] for t in tokens), torch.zeros(3).double())
            text_E = total_E / max(1, len(tokens)) ** 0.5
            h = functional.linear(text_E, own["hidden1.weight"], own["hidden1.bias"]).relu()
            expected = functional.linear(h, own["output.weight"], own["output.bias"])
            torch.testing.assert_close(logits[k, b], expected, rtol=0, atol=1e-12)
