"""A user's own customizer: its errors and its wrong results name it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError, refusal
from rampart_fl.shared.robust.base import Context, Rows, State
from rampart_fl.shared.robust.customizers import Customization, Customizer
from rampart_fl.shared.robust.customizers.fedcap import FedCAP
from rampart_fl.shared.robust.engine import Plan, run_round

NOTE = "raised by 'own' of my-package==1"
ROWS = Rows.of(torch.eye(3), ids=["a", "b", "c"])
CONTEXT = Context(reference_D=torch.zeros(3))


def own(given: Any) -> Customizer:
    """A customizer whose methods return or raise the given value."""

    def answer() -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    class Own(Customizer):
        name = "own"
        package = "my-package==1"

        def check_rows(self, rows: Rows, context: Context) -> None:
            answer()

        def apply(
            self, rows: Rows, similar: Rows, state: State, context: Context
        ) -> tuple[Customization, State]:
            return answer()

        def customize_newcomer(self, probe_D: Tensor, rows: Rows, context: Context) -> Tensor:
            return answer()

    return Own()


@pytest.mark.parametrize("given", [None, Customization(), (Customization(), None), (1, State())])
def test_wrong_customization_is_refused_with_the_name_of_the_customizer(given: Any) -> None:
    plan = Plan.of("median", customizer=own(given))
    with pytest.raises(ConfigurationError) as caught:
        run_round(plan, ROWS, State(), CONTEXT)
    assert str(caught.value) == (
        f"customizer 'own' of my-package==1: apply returned {given!r}, not a Customization and a "
        "State"
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [(None, "None"), (torch.ones(2), r"shape \(2,\)"), (torch.ones(3, 3), r"shape \(3, 3\)")],
)
def test_wrong_weights_for_a_newcomer_are_refused(given: Any, shown: str) -> None:
    problem = f"'own' of my-package==1: customize_newcomer returned {shown}, not 3 weights"
    with pytest.raises(ConfigurationError, match=problem):
        own(given).customize_newcomer(torch.ones(3), rows=ROWS, context=CONTEXT)


def test_correct_results_are_returned() -> None:
    right = Customization(), State()
    assert own(right).apply(ROWS, ROWS, State(), CONTEXT) is right
    assert own(torch.ones(3)).customize_newcomer(torch.ones(3), ROWS, CONTEXT).tolist() == [1] * 3


def test_errors_of_a_customizer_name_it_but_failed_rounds_do_not() -> None:
    plan = Plan.of("median", customizer=own(KeyError("a")))
    with pytest.raises(KeyError) as caught:
        run_round(plan, ROWS, State(), CONTEXT)
    assert caught.value.__notes__ == [NOTE]
    plan = Plan.of("median", customizer=own(KeyError("a")))
    assert refusal(plan.check_rows, 3) == [f"KeyError: 'a' ({NOTE})"]
    failed = PreconditionError("too few")
    with pytest.raises(PreconditionError):
        own(failed).apply(ROWS, ROWS, State(), CONTEXT)
    assert not hasattr(failed, "__notes__")


def test_method_that_a_customizer_inherits_from_a_mixin_is_checked() -> None:
    class Forgetful:
        def apply(self, *_: Any) -> Any:
            return None

    class Own(Forgetful, Customizer):
        name = "own"
        package = "my-package==1"

    for customizer in (Own, type("Further", (Own,), {})):
        with pytest.raises(ConfigurationError, match="'own' of my-package==1: apply returned None"):
            customizer().apply(ROWS, ROWS, State(), CONTEXT)
    assert Forgetful().apply() is None


def test_subclass_of_a_customizer_is_checked_and_keeps_the_docstrings() -> None:
    class Own(FedCAP):
        name = "own"
        package = "my-package==1"

        def apply(self, *args: Any) -> Any:
            """Forgets the state."""
            return super().apply(*args)[0]

    with pytest.raises(ConfigurationError, match="'own' of my-package==1: apply returned"):
        Own().apply(ROWS, ROWS, State(), CONTEXT)
    assert Own.apply.__doc__ == "Forgets the state."
