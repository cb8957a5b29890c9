"""BadNets: the trigger, the poisoned share and the success rate."""

import pytest
import torch

from rampart_fl.shared.attacks.data import attacks
from rampart_fl.shared.attacks.triggers import Backdoor
from rampart_fl.shared.errors import ConfigurationError

X, Y = torch.full((40, 1, 6, 6), 0.5), torch.arange(40) % 10


def build(**parameters: float) -> Backdoor:
    attack = attacks.build("badnets", **parameters)
    assert isinstance(attack, Backdoor)
    return attack


def test_exactly_the_configured_share_is_poisoned() -> None:
    x, y = build(size=2, target=3, poison_rate=0.3).apply(
        X, Y, 10, torch.Generator().manual_seed(1)
    )
    stamped = (x[:, 0, :2, :2] == 1).flatten(1).all(dim=1)
    assert int(stamped.sum()) == 12
    assert set(y[stamped].tolist()) == {3}
    assert torch.equal(y[~stamped], Y[~stamped])
    assert torch.equal(x[~stamped], X[~stamped])
    assert bool((x[:, 0, 2:, :] == 0.5).all() and (x[:, 0, :2, 2:] == 0.5).all())


def test_success_rate_excludes_samples_of_the_target_class() -> None:
    attack = build(size=2, target=3)
    shown = attack.triggered(X, Y)
    assert len(shown) == int((Y != 3).sum()) == 36
    assert bool((shown[:, 0, :2, :2] == 1).all())
    assert attack.success(torch.tensor([3, 3, 3, 0])) == 0.75
    # A model that classifies everything correctly was never fooled.
    assert attack.success(Y[Y != 3]) == 0.0
    assert attack.success(Y[:0]) is None


def test_trigger_covers_all_channels_and_images_without_channels() -> None:
    attack = build(size=1, poison_rate=1)
    colour, _ = attack.apply(torch.zeros(2, 3, 4, 4), Y[:2], 10, torch.Generator())
    assert colour[:, :, 0, 0].tolist() == [[1.0] * 3] * 2
    plain, _ = attack.apply(torch.zeros(2, 4, 4), Y[:2], 10, torch.Generator())
    assert plain[:, 0, 0].tolist() == [1.0, 1.0]


def test_update_is_scaled() -> None:
    assert build(scale=100).upload(torch.ones(1, 2)).tolist() == [[100.0, 100.0]]


def test_unsuitable_images_and_target_classes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="7x7 pixels does not fit into 6x6"):
        build(size=7).apply(X, Y, 10, torch.Generator())
    with pytest.raises(ConfigurationError, match="needs images"):
        build().apply(torch.zeros(4, 9), Y[:4], 10, torch.Generator())
    with pytest.raises(ConfigurationError, match="no class 10; the task has 10 classes"):
        build(target=10).apply(X, Y, 10, torch.Generator())
