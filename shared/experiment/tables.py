"""The base class of all tables of an experiment file: frozen, typed, and without unknown keys."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


MemberSpec = Annotated[dict[str, Any], BeforeValidator(_named)]
"""A member of a family: its name, or a table with `name` and its parameters."""


class Table(BaseModel):
    """A table of an experiment file; it is frozen and refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
