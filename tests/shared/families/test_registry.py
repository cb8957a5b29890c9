"""Families: registration, look-up, and parameters that are checked where a member is built."""

import importlib
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import Field

from rampart_fl.shared.errors import ConfigurationError, UnknownMember
from rampart_fl.shared.families.registry import FamilyMember, Registry, signature


class Shape(FamilyMember):
    """The family's type in these tests."""


class Outer(Shape):
    """A member that calls another member."""

    def call(self, inner: Shape) -> None:
        """Raises the error of the other member's code."""
        with self.own_errors(), inner.own_errors():
            raise KeyError("a")


def test_an_error_names_only_the_innermost_member_whose_code_raised_it() -> None:
    outer, inner, built_in = (type("Own", (Outer,), {"name": name}) for name in ("a", "b", "c"))
    outer.package = inner.package = "mine==1"
    for called, blamed in ((inner, "'b'"), (built_in, "'a'")):
        with pytest.raises(KeyError) as caught:
            outer().call(called())
        assert caught.value.__notes__ == [f"raised by {blamed} of mine==1"]


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Shape]:
    """A family whose package has two modules, of which one registers a member."""
    package = tmp_path / "family_of_shapes"
    package.mkdir()
    (package / "__init__.py").write_text("found = []\n")
    (package / "square.py").write_text(
        textwrap.dedent(
            """
            import family_of_shapes
            family_of_shapes.found.append("square")
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("family_of_shapes")]:
        monkeypatch.delitem(sys.modules, name)
    family: Registry[Shape] = Registry(
        Shape, "shape", package="family_of_shapes", group="rampart_fl.shapes"
    )

    @family.register("circle")
    class Circle(Shape):
        """A circle."""

        radius: float = Field(gt=0)
        f: int = Field(default=0, ge=0)
        filled: bool | int = True
        sides: list[int] = Field(default=[])

    @family.register("dot")
    class Dot(Shape):
        """A dot."""

    return family


def test_threads_see_all_members_from_the_first_look_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "family_of_slow_shapes"
    package.mkdir()
    (package / "__init__.py").write_text(
        textwrap.dedent(
            """
            from threading import Event
            importing, may_go_on, shapes = Event(), Event(), []
            """
        )
    )
    (package / "square.py").write_text(
        textwrap.dedent(
            """
            import family_of_slow_shapes as family
            family.importing.set()
            assert family.may_go_on.wait(30)
            family.shapes[0].register("square")(type("Square", (family.shapes[0].kind,), {}))
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    slow: Registry[Shape] = Registry(
        Shape, "shape", package=package.name, group="rampart_fl.slow_shapes"
    )
    module = importlib.import_module(package.name)
    module.shapes.append(slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow.names)
        assert module.importing.wait(30)
        second = pool.submit(slow.names)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        module.may_go_on.set()
        assert first.result(30) == second.result(30) == ("square",)


def test_first_lookup_imports_every_module_of_the_package_once(shapes: Registry[Shape]) -> None:
    assert "family_of_shapes" not in sys.modules
    assert shapes.names() == ("circle", "dot")
    assert sys.modules["family_of_shapes"].found == ["square"]
    assert shapes.names() == ("circle", "dot")
    assert sys.modules["family_of_shapes"].found == ["square"], "imported once"


def test_a_member_knows_its_name(shapes: Registry[Shape]) -> None:
    assert shapes.get("circle").name == "circle"
    assert shapes.build("dot").name == "dot"


def test_an_unknown_name_lists_the_known_ones(shapes: Registry[Shape]) -> None:
    with pytest.raises(UnknownMember, match=r"unknown shape 'circel' \(did you mean 'circle'\?\)"):
        shapes.get("circel")
    with pytest.raises(UnknownMember, match="known: circle, dot"):
        shapes.build("triangle")


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({}, "radius"),
        ({"radius": 0}, "greater than 0"),
        ({"radius": "wide"}, "valid number"),
        ({"radius": float("nan")}, "finite"),
        ({"radius": True}, "radius: true is not a number"),
        ({"radius": 1, "f": False}, "f: false is not a number"),
        ({"radius": 1, "sides": [2, True]}, "sides: true is not a number"),
        ({"radius": 1, "raduis": 2}, "raduis"),
        ({"radius": 1, "f": -1}, "greater than or equal to 0"),
    ],
)
def test_invalid_parameters_are_rejected_with_the_list_of_valid_ones(
    shapes: Registry[Shape], parameters: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        shapes.build("circle", **parameters)
    known = "parameters: radius, f=0, filled=True, sides=[]"
    assert "shape 'circle'" in str(caught.value) and known in str(caught.value)


def test_a_member_is_frozen(shapes: Registry[Shape]) -> None:
    circle = shapes.build("circle", radius=2)
    with pytest.raises(ValueError, match="frozen"):
        circle.radius = 3


def test_a_spec_is_a_name_a_table_or_the_member_itself(shapes: Registry[Shape]) -> None:
    circle = shapes.parse({"name": "circle", "radius": 2})
    assert shapes.parse(circle) is circle
    assert shapes.parse("dot") == shapes.build("dot")
    for spec in ({"radius": 2}, {"name": 3}, {}):
        with pytest.raises(ConfigurationError, match="a shape needs a name; known: circle, dot"):
            shapes.parse(spec)


def test_defaults_fill_existing_parameters_that_the_spec_omits(shapes: Registry[Shape]) -> None:
    assert shapes.parse({"name": "circle", "radius": 1}, f=2, b=3).f == 2
    assert shapes.parse({"name": "circle", "radius": 1, "f": 1}, f=2).f == 1
    assert shapes.parse("dot", f=2) == shapes.build("dot")


def test_parse_does_not_modify_its_spec(shapes: Registry[Shape]) -> None:
    spec = {"name": "circle", "radius": 1}
    shapes.parse(spec, f=2)
    assert spec == {"name": "circle", "radius": 1}


def test_registering_a_name_twice_fails(shapes: Registry[Shape]) -> None:
    with pytest.raises(AssertionError, match="dot twice"):

        @shapes.register("dot")
        class Another(Shape):
            """Another."""


def test_a_signature_shows_defaults(shapes: Registry[Shape]) -> None:
    assert signature(shapes.get("circle")) == "radius, f=0, filled=True, sides=[]"
    assert signature(shapes.get("dot")) == "none"
