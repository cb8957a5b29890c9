"""Acceptance: the client's owner writes a file that says which runs the client accepts.

An experiment reaches a client as settings, never as code. The owner's file restricts the settings
that the client accepts. If the file rules out a setting of a run, the client declines this run
before its start, and tells the operator why. The client's reason for declining states the client's
limits, but never the names of the client's files.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.tables import Table
from rampart_fl.shared.families.registry import explain

LONGEST = 64 * 1024
"""The largest size, in bytes, of an owner's file."""
LONGEST_REASON = 500
"""The largest length, in characters, of a reason that the client sends."""
SLOT: Literal["slot"] = "slot"
Name = Annotated[str, Field(min_length=1, max_length=100)]


class LeastPrivacy(Table):
    """The differential privacy that the client requires of every run in which it takes part."""

    least_noise: float = Field(default=0.0, ge=0)
    """The smallest `training.privacy.noise_multiplier` that a run may have."""


class Policy(Table):
    """The content of the owner's file. A key that the file lacks imposes no restriction."""

    data: dict[Name, Name] | None = None
    """The client takes part only in runs with one of these data sets. The keys are the names of the
    data sets. A value is the path of the client's own .npz file, or the word "slot". With "slot",
    the client uses its slot's part of the experiment's data."""
    most_epochs: int | None = Field(default=None, ge=1)
    """The largest `training.epochs` (passes over the samples in a round) that a run may have."""
    models: list[Name] | None = None
    """Names of the models that the client agrees to train."""
    objectives: list[Name] | None = None
    """Names of the objectives that a run may add to the cross entropy; an empty list allows
    none."""
    privacy: LeastPrivacy | None = None
    """If the file has the table `privacy`, the client takes part only in runs with differential
    privacy."""

    @classmethod
    def load(cls, path: Path | None) -> Self:
        """Reads the owner's file; without a file, the client agrees to everything.

        Raises:
            ConfigurationError: the file cannot be read, is too long, is not TOML, has an unknown
                key, has a wrong value, or names a data file that does not exist.
        """
        if path is None:
            return cls()
        try:
            return cls._parse(path)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def _parse(cls, path: Path) -> Self:
        try:
            with path.open("rb") as file:
                content = file.read(LONGEST + 1)
        except OSError as error:
            raise ConfigurationError(f"the file cannot be read: {error.strerror}") from None
        if len(content) > LONGEST:
            raise ConfigurationError(f"the file is longer than {LONGEST} bytes")
        try:
            policy = cls.model_validate(tomllib.loads(content.decode()))
        except ValidationError as error:
            raise ConfigurationError(explain(error, cls)) from None
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"the file is not TOML: {error}") from None
        if policy.data is None:
            return policy
        data = {dataset: cls._own_file(path, dataset, own) for dataset, own in policy.data.items()}
        return policy.model_copy(update={"data": data})

    @staticmethod
    def _own_file(path: Path, dataset: str, named: str) -> str:
        """The absolute path of a data file; `named` is its path relative to the owner's file.

        If `named` is "slot", it is returned unchanged.
        """
        if named == SLOT:
            return named
        own = path.parent.absolute() / named
        if own.suffix != ".npz" or not own.is_file():
            raise ConfigurationError(
                f'data.{dataset} must be "slot" or an .npz file that exists, not {named!r}'
            )
        return str(own)


@dataclass(frozen=True)
class OfferAnswer:
    """A client's answer to the offer of a run.

    Args:
        accept: whether the client takes part.
        reason: why the client does not take part, for the federation's operator; "" if the client
            takes part.
        data_file: file with the client's own samples; None if the client uses its slot's part of
            the experiment's data.
    """

    accept: bool
    reason: str = ""
    data_file: Path | None = None


def decide(policy: Policy, experiment: Experiment) -> OfferAnswer:
    """The answer of a client with this policy to the offer of a run with this experiment.

    >>> digits = Experiment.load("digits-benign")
    >>> decide(Policy(), digits).accept
    True
    >>> decide(Policy(most_epochs=2, models=["mlp"]), digits).reason
    "model 'cnn': this client trains only mlp; training.epochs is 5: this client trains at most 2"
    """
    reasons = "; ".join(_violations(policy, experiment))
    if reasons:
        return OfferAnswer(False, reasons[:LONGEST_REASON])
    own = (policy.data or {}).get(experiment.data.dataset["name"], SLOT)
    return OfferAnswer(True, data_file=None if own == SLOT else Path(own))


def _violations(policy: Policy, experiment: Experiment) -> Iterator[str]:
    """Yields a reason for each setting of the experiment that the policy rules out."""
    training = experiment.training
    dataset, model = experiment.data.dataset.get("name"), experiment.network.get("name")
    if policy.data is not None and dataset not in policy.data:
        yield f"data set {_short(dataset)}: this client takes part only with {_listed(policy.data)}"
    if policy.models is not None and model not in policy.models:
        yield f"model {_short(model)}: this client trains only {_listed(policy.models)}"
    for term in training.objective if policy.objectives is not None else ():
        name = term.get("name")
        if name not in (policy.objectives or ()):
            allowed = _listed(policy.objectives or ())
            yield f"objective term {_short(name)}: this client allows only {allowed}"
    if policy.most_epochs is not None and training.epochs > policy.most_epochs:
        yield (
            f"training.epochs is {training.epochs}: this client trains at most {policy.most_epochs}"
        )
    if policy.privacy is not None:
        least = policy.privacy.least_noise
        if training.privacy is None:
            yield "training.privacy is missing, but this client requires it"
        elif training.privacy.noise_multiplier < least:
            yield (
                f"training.privacy.noise_multiplier is {training.privacy.noise_multiplier:g}: this "
                f"client needs at least {least:g}"
            )


def _short(name: object) -> str:
    """Shortens a name for display; a name in an experiment can have any type and length."""
    return repr(name)[:80]


def _listed(names: "list[str] | dict[str, str] | tuple[()]") -> str:
    return ", ".join(sorted(names)) or "none"
