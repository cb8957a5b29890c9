"""The key `start` of an experiment's model: where the first global model comes from."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from rampart_fl.shared.experiment.tables import MemberSpec, Table
from rampart_fl.shared.families.registry import explain

RUN_ID = r"^[a-z0-9][a-z0-9-]{0,47}-[0-9]{1,9}$"
"""The form of a run's id: a name and a number."""


class Start(Table):
    """Where the first global model comes from: a run of the federation, or a file."""

    run: str | None = Field(default=None, pattern=RUN_ID)
    """Id of a run of the same federation."""
    round: int | None = Field(default=None, ge=0)
    """Number of the round that produced the global model; by default, the last round of `run`."""
    file: str | None = Field(default=None, min_length=1, max_length=4096)
    """Path of a safetensors file with the model's tensors, relative to the current folder."""

    @model_validator(mode="after")
    def _one_source(self) -> "Start":
        if (self.run is None) == (self.file is None):
            raise ValueError(
                'give { run = "..." }, { run = "...", round = 30 } or { file = "..." }'
            )
        if self.file is not None and self.round is not None:
            raise ValueError("`round` can be given only with `run`, not with `file`")
        return self


def with_start(spec: MemberSpec) -> MemberSpec:
    """Checks the key `start` of a model's member spec, if the spec has this key.

    Raises:
        ValueError: `start` is not a valid table; the message says why.
    """
    if "start" not in spec:
        return spec
    try:
        start = Start.model_validate(spec["start"])
    except ValidationError as error:
        explanation = explain(error, Start)
        raise ValueError(f"start{'.' if _names_key(error) else ': '}{explanation}") from None
    return {**spec, "start": start.model_dump(exclude_none=True)}


def _names_key(error: ValidationError) -> bool:
    return bool(error.errors()[0]["loc"])


def start_of(spec: MemberSpec) -> Start | None:
    """The source of the first global model; None if the model is drawn from the seed."""
    return Start.model_validate(spec["start"]) if "start" in spec else None


def without_start(spec: MemberSpec) -> dict[str, Any]:
    """The model's member spec, without the key `start`.

    >>> without_start({"name": "mlp", "hidden": [8], "start": {"file": "a.safetensors"}})
    {'name': 'mlp', 'hidden': [8]}
    """
    return {key: value for key, value in spec.items() if key != "start"}


def from_file(spec: MemberSpec, file: str | Path) -> MemberSpec:
    """A copy of the model's member spec, in which the key `start` names this file."""
    return {**spec, "start": {"file": str(file)}}
