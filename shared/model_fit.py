"""Checks whether a model is compatible with the samples, the personalizer and private training.

If the model is not compatible, the result says why.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from rampart_fl.shared.built_experiment import BuiltExperiment
from rampart_fl.shared.errors import explained, refusal


@dataclass(frozen=True)
class Misfits:
    """Why a model is refused: three lists of messages, which are empty for a model that fits.

    Args:
        samples: messages that say that the model is for another task, or for samples of another
            shape.
        personalizer: messages that say that the personalizer does not suit the model.
        privacy: messages that say that the privacy loss of the model's training cannot be computed.
    """

    samples: list[str]
    personalizer: list[str] = field(default_factory=list)
    privacy: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Network:
    """A cache key; keys are equal if all settings and classes that concern the model are equal."""

    settings: str
    kinds: tuple[type, ...]
    built: BuiltExperiment = field(compare=False)


def misfits(built: BuiltExperiment) -> Misfits:
    """Builds the experiment's model without values, and lists what does not fit the model."""
    from rampart_fl.shared.learning.network.models import models

    experiment = built.experiment
    settings = experiment.model_dump_json(
        include={"model": True, "data": {"dataset"}, "personalizer": True, "training": {"privacy"}}
    )
    kinds = (type(models.parse(experiment.network)), type(built.dataset))
    return _checked(_Network(settings, (*kinds, type(built.personalizer)), built))


@lru_cache(maxsize=1024)
def _checked(network: _Network) -> Misfits:
    """Like `misfits`, but cached, because the experiments of a sweep often have the same model."""
    from rampart_fl.shared.learning.network.vector import build_module, outline, spec_of
    from rampart_fl.shared.learning.training.personalizer_calls import check
    from rampart_fl.shared.learning.training.privacy import require_accountable

    built = network.built
    try:
        # A user's personalizer may look at the model's values.
        build = build_module if built.personalizer.package else outline
        module = build(built.experiment)
    except Exception as error:  # The code of a user's model may raise anything.
        message = explained(error)
        if message is None:
            raise
        return Misfits([message])
    personalizer, privacy = built.personalizer, built.experiment.training.privacy
    return Misfits(
        [],
        refusal(check, personalizer, module, spec_of(module)),
        refusal(require_accountable, privacy, module, personalizer),
    )
