"""What the contract suites need to know about individual members: parameters, exemptions, context.

A member that is not named here is tested with its defaults. An exemption names the contract that
does not hold by the rule's own definition, and says why. Rules whose breakdown is "none" promise no
robustness, and need no exemption from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.context import PublicData
from rampart_fl.shared.robust.evidence import trials
from rampart_fl.shared.robust.evidence.client_memory import ClientMemory
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules

N, F, D = 11, 2, 40
UNBOUNDED = {name for name in rules.names() if rules.get(name).breakdown == "none"}


@dataclass(frozen=True)
class Case:
    """One member under test."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    exempt: Mapping[str, str] = field(default_factory=dict)
    spread: float = 6.0
    """Bound on the bias under attack, in multiples of the honest rows' largest deviation."""

    def skip(self, contract: str) -> None:
        """Skips the test if the member is exempt from this contract."""
        if contract in self.exempt:
            pytest.skip(self.exempt[contract])
        if contract == "robust" and self.name in UNBOUNDED:
            pytest.skip("says of itself that one row can move it anywhere")

    def context(self, dim: int = D) -> Context:
        """Everything that a member may need from its context."""
        return Context(
            round=1,
            seed=5,
            server_update_D=torch.ones(dim),
            reference_D=torch.ones(dim),
            predict=linear,
            public=public(dim),
        )


def all_challenged(name: str, state: State, patch: pytest.MonkeyPatch) -> State:
    """A detector's state after which it challenges every client in the next round."""
    if name == "response":
        for name in ("suspected", "doubtful"):
            patch.setattr(ClientMemory, name, property(lambda one: one.rounds > 0))
        return state
    known, joined = trials.from_state(state, 1)
    for one in known.values():
        one.trial = 3
    return trials.to_state(known, joined)


@cache
def public(dim: int) -> PublicData:
    """Public samples for linear models with this many coordinates."""
    draws = torch.Generator().manual_seed(9)
    features = max(dim // 4, 1)
    return PublicData(
        torch.randn(12, features, generator=draws), torch.arange(12) % (dim // features)
    )


def linear(models_KD: torch.Tensor, x_KB: torch.Tensor) -> torch.Tensor:
    """Logits (K, B, C) of linear models without a bias."""
    weights = models_KD.unflatten(1, (-1, x_KB.shape[2]))
    return torch.einsum("kcf,kbf->kbc", weights, x_KB.to(models_KD.dtype))


RULES = {
    "norm_clipping": Case(
        "norm_clipping",
        {"threshold": 10.0},
        {"robust": "bounded by its threshold, not by the honest rows' spread"},
    ),
    "rfa": Case(
        "rfa", exempt={"weights": "trusted weights are its masses: the operator caps them"}
    ),
    "monna": Case("monna", {"pivot": "00"}),
    "foolsgold": Case(
        "foolsgold",
        exempt={
            "identical": "identical rows are clones: all weights are 0",
            "precision": "rows this close to each other are clones: all weights are 0",
        },
    ),
    "fltrust": Case(
        "fltrust", exempt={"identical": "rows are scaled to the length of the server's update"}
    ),
    "performance_aware": Case("performance_aware", exempt={"robust": "trusts claimed gaps"}),
    "sageflow": Case("sageflow", {"entropy": 9.0}),
    "sdea": Case(
        "sdea",
        {"epochs": 2},
        {"precision": "weights are learned through the network, in the network's own precision"},
    ),
}
PREAGGREGATORS = {
    "clipping": Case(
        "clipping", {"threshold": 5.0}, {"robust": "cuts to its threshold, whatever the rows' size"}
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each contract over every registered member."""
    families: dict[str, tuple[tuple[str, ...], dict[str, Case]]] = {
        "rule": (rules.names(), RULES),
        "preaggregator": (preaggregators.names(), PREAGGREGATORS),
    }
    for family, (names, table) in families.items():
        if family in metafunc.fixturenames:
            cases = [table.get(name, Case(name)) for name in names]
            metafunc.parametrize(family, cases, ids=names)


def honest(n: int = N, dim: int = D, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows of n honest clients around one common direction."""
    draws = torch.Generator().manual_seed(3)
    noise_ND = torch.randn(n, dim, generator=draws, dtype=torch.float64)
    return (1 + 0.3 * noise_ND).to(dtype)


@pytest.fixture
def updates_ND() -> torch.Tensor:
    """N honest rows."""
    return honest()


@pytest.fixture
def make_rows() -> Callable[..., Rows]:
    """Rows with the metadata that some rules read."""

    def make(updates_ND: torch.Tensor, ids: Any = None) -> Rows:
        gaps = {"loss_gap": torch.ones(len(updates_ND), dtype=torch.float64)}
        return Rows.of(updates_ND, ids=ids, metadata=gaps)

    return make
