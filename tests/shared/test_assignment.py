"""Names of models by client: its own, those assigned, its group's."""

from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.assignment import group_of, names_for

GROUPS = ("group:0", "group:1", "group:2")
CLIENTS = [f"client-{k:03d}" for k in range(300)]


def test_the_assigned_models_come_before_the_own_one_and_that_before_the_group() -> None:
    assignment = {"a": ("x:1", "b")}
    assert names_for("a", ["a"], assignment, GROUPS) == ("x:1", "b")
    assert names_for("b", ["b"], assignment, GROUPS) == ("b",)
    assert names_for("c", [], assignment, GROUPS) == (group_of("c", GROUPS),)
    assert names_for("c", [], assignment) == ()


@given(st.text(min_size=1))
def test_a_group_depends_on_the_id_alone(client: str) -> None:
    assert group_of(client, GROUPS) == group_of(client, GROUPS)
    assert group_of(client, ["only"]) == "only"


def test_groups_are_about_equal() -> None:
    sizes = [sum(group_of(c, GROUPS) == name for c in CLIENTS) for name in GROUPS]
    assert min(sizes) > 70 and sum(sizes) == 300
