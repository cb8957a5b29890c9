"""The base class of all tables of an experiment file: frozen, typed, and without unknown keys."""

from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from rampart_fl.shared.families.numbers import refuse_booleans, refuse_non_finite


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _finite(spec: dict[str, Any]) -> dict[str, Any]:
    refuse_non_finite(spec)
    return spec


MemberSpec = Annotated[dict[str, Any], BeforeValidator(_named), AfterValidator(_finite)]
"""Specifies a member of a family: the member's name, or a table with `name` and parameters.
Experiments are sent as JSON, which cannot represent NaN or infinity, so all parameters are
finite."""
MemberSpecs = Annotated[
    list[MemberSpec], BeforeValidator(lambda value: value if isinstance(value, list) else [value])
]
"""Specifies members of a family: one member, or a list of members."""


class Table(BaseModel):
    """A table of an experiment file; it is frozen and refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    later: ClassVar[frozenset[str]] = frozenset()
    """Keys that later versions of Rampart added to the table. When a table is converted to JSON, a
    key in `later` is left out if it has its default value. The digest of an experiment is computed
    from this JSON. Therefore, an experiment that does not use a new key keeps its digest."""

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        refuse_booleans(value, cls.model_fields[str(info.field_name)].annotation)
        return value

    @model_serializer(mode="wrap")
    def _without_defaults_of_later(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        made: dict[str, Any] = dump(self)
        for key in self.later:
            if getattr(self, key) == type(self).model_fields[key].get_default():
                made.pop(key, None)
        return made
