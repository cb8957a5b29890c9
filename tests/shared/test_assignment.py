"""The names of a client's models: assigned models, its own model, or its group's model."""

from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.assignment import group_of, names_for

GROUPS = ("group:0", "group:1", "group:2")
CLIENTS = [f"client-{k:03d}" for k in range(300)]


def test_assigned_models_precede_own_models_and_own_precede_group_models() -> None:
    assignment = {"a": ("x:1", "b")}
    assert names_for("a", ["a"], assignment, GROUPS) == ("x:1", "b")
    assert names_for("b", ["b"], assignment, GROUPS) == ("b",)
    assert names_for("c", [], assignment, GROUPS) == (group_of("c", GROUPS),)
    assert names_for("c", [], assignment) == ()


def test_groups_are_the_same_in_every_process() -> None:
    numbers = [int(group_of(client, GROUPS)[-1]) for client in CLIENTS[:6]]
    assert numbers == [0, 2, 2, 0, 0, 0]


@given(st.text(min_size=1))
def test_every_client_id_has_a_group(client: str) -> None:
    assert group_of(client, GROUPS) in GROUPS
    assert group_of(client, ["only"]) == "only"


def test_groups_have_similar_sizes() -> None:
    sizes = [sum(group_of(c, GROUPS) == name for c in CLIENTS) for name in GROUPS]
    assert min(sizes) > 70 and sum(sizes) == 300
