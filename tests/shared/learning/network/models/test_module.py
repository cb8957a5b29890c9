"""A user's own network: its arguments, and the error for each mistake."""

from typing import Any

import pytest
import torch
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.models import models


class Net(nn.Module):
    """Takes the number of classes and a width."""

    def __init__(self, classes: int, width: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, width)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.output(self.drop(self.hidden(x).tanh()))
        return logits


class Shaped(nn.Sequential):
    """Takes the shape of a sample."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(nn.Flatten(), nn.Linear(shape[0], 2))


class Frozen(Net):
    """Has a parameter that is not trained."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.output.bias.requires_grad_(False)


class Drawing(Net):
    """Draws at random in forward during training, without a dropout layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.dropout(x, training=self.training))


class Twofold(Net):
    """Has a second output during training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = super().forward(x)
        return torch.stack([logits, logits]) if self.training else logits


class Broken(Net):
    """Uses an attribute that does not exist."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.embedding(x))


class Normalized(Net):
    """Has running statistics, which a trial batch must not change."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.hidden = nn.Sequential(self.hidden, nn.BatchNorm1d(3))


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this file's classes importable from a user's package `own`."""
    import sys
    import types

    own = types.ModuleType("own")
    for item in (Net, Shaped, Frozen, Drawing, Twofold, Broken, Normalized):
        setattr(own, item.__name__, item)
    own.function = lambda: Net(2)
    monkeypatch.setitem(sys.modules, "own", own)


def test_arguments_are_passed_and_classes_or_shape_are_filled_in() -> None:
    module = models.parse({"name": "module", "path": "own:Net", "width": 5}).build((4,), 2)
    assert isinstance(module, Net)
    assert module.hidden.out_features == 5
    assert module.training
    assert isinstance(models.build("module", path="own:Shaped").build((4,), 2), Shaped)


@pytest.mark.parametrize(
    ("table", "shape", "message"),
    [
        ({"path": "own:Nett"}, (4,), "own has no 'Nett'"),
        ({"path": "no_such_package:Net"}, (4,), "no module 'no_such_package'"),
        ({"path": "own:function"}, (4,), "not a subclass of torch.nn.Module"),
        ({"path": "os:system"}, (4,), "not a subclass of torch.nn.Module"),
        ({"path": "own:Net", "widht": 5}, (4,), r"unexpected keyword argument 'widht'.*takes \("),
        ({"path": "own:Net"}, (5,), r"fails on a batch of shape \(2, 5\)"),
        ({"path": "own:Net", "classes": 9}, (4,), r"to \(2, 9\), not to logits \(2, 2\)"),
        ({"path": "own:Net", "dropout": 0.5}, (4,), "draws at random"),
        ({"path": "own:Frozen"}, (4,), "output.bias is frozen"),
        ({"path": "own:Drawing"}, (4,), "draws at random in forward"),
        ({"path": "own:Twofold"}, (4,), r"to \(2, 2, 2\), not to logits \(2, 2\) in training"),
        ({"path": "own:Broken"}, (4,), "fails on a batch.*AttributeError: .*'embedding'"),
        ({"path": "own:Net", "width": "5"}, (4,), "cannot be built: TypeError"),
    ],
)
def test_unusable_modules_are_rejected_with_the_reason(
    table: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        models.build("module", **table).build(shape, 2)


def test_trial_batch_leaves_the_module_unchanged() -> None:
    module = models.build("module", path="own:Normalized").build((4,), 2)
    counted = [b for name, b in module.named_buffers() if name.endswith("num_batches_tracked")]
    assert [int(count) for count in counted] == [0]
    assert module.training


@pytest.mark.parametrize("path", ["own", "own.Net", "own:", "own:Net()", "../own:Net"])
def test_malformed_paths_are_rejected(path: str) -> None:
    with pytest.raises(ConfigurationError, match="path"):
        models.build("module", path=path)
