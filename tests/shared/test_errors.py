"""The error tree: every error has an HTTP status, a slug and a message."""

import pickle
import re
from collections.abc import Iterator

import pytest

import rampart_fl.shared.errors as errors
from rampart_fl.shared.agent.client import RequestRefused
from rampart_fl.shared.errors import RampartError, UnknownMember


def tree(root: type[RampartError] = RampartError) -> Iterator[type[RampartError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


OURS = [error for error in tree() if error.__module__ == errors.__name__]


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_every_error_has_a_status_slug_title_and_docstring(error: type[RampartError]) -> None:
    assert 400 <= error.status < 600
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.slug)
    assert error.title and error.__doc__


def test_slugs_are_distinct() -> None:
    assert len({error.slug for error in OURS}) == len(OURS)


def test_the_detail_is_the_message() -> None:
    assert RampartError("the disk is full").detail == "the disk is full"


def test_caller_errors_are_value_errors() -> None:
    for error in (errors.ConfigurationError, errors.PreconditionError, UnknownMember):
        assert issubclass(error, ValueError)
    assert not issubclass(errors.Unavailable, ValueError)


def test_only_similar_names_are_suggested() -> None:
    assert str(UnknownMember("rule", "xyz", ("krum", "median"))) == (
        "unknown rule 'xyz'; known: krum, median"
    )
    assert "did you mean 'median'" in str(UnknownMember("rule", "medan", ("krum", "median")))


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigurationError("epochs: 0 is too few"),
        UnknownMember("rule", "krun", ("krum", "median"), "my-rules==1.2"),
        RequestRefused(410, "late", "round 3 is over"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: RampartError) -> None:
    same = pickle.loads(pickle.dumps(error))
    assert type(same) is type(error) and str(same) == str(error)
    assert same.__dict__ == error.__dict__
