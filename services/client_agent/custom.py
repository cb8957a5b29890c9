"""Your own client: you write two methods on lists of numpy arrays, and an agent calls them.

The agent joins the federation, keeps the client's identity, waits, retries and sends heartbeats.
You write only the computation, with or without a machine-learning library. A Flower `NumPyClient`
works without changes if it takes and returns the parameters sorted by name.

    class Mine:
        def fit(self, parameters, config): ...           # -> parameters, num_examples, metrics
        def evaluate(self, parameters, config): ...      # -> loss, num_examples, metrics

    take_part(Mine(), aggregator="https://aggregator.example", join_token="...")

You can also run `python -m rampart_fl.services.client_agent --client my_module:Mine` in a shell;
the agent then calls `Mine(slot)`. docs/your-own-client.md has a complete client in 20 lines.
"""

import asyncio
import logging
import reprlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from rampart_fl.shared.agent.agent_context import AgentContext, Build
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import host
from rampart_fl.shared.agent.learning_client import RunFiles
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.families.importpath import load_callable
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.counts import MOST_SAMPLES, wrong_counts
from rampart_fl.shared.protocol.messages import MOST_METRICS, ClientReport, Ticket
from rampart_fl.shared.protocol.reports import sendable
from rampart_fl.shared.protocol.traffic import claims
from rampart_fl.shared.runtime.compute import compute_on

log = logging.getLogger(__name__)
Parameters = list[NDArray[Any]]
"""The model's tensors, sorted by name; `config["tensors"]` lists the names."""
Config = dict[str, Any]
"""The experiment's `training` table (epochs, batch_size, learning_rate, ...) and four more keys.
`round` is the number of the round, and `client` is the client's id. `kind` is "train", "probe" or
"evaluate". `tensors` has the names of the parameters, in order."""


class Client(Protocol):
    """The methods of your own client; the methods may change `parameters`, which is a copy."""

    def fit(
        self, parameters: Parameters, config: Config
    ) -> tuple[Sequence[NDArray[Any]], int, Mapping[str, Any]]:
        """Trains; returns (trained parameters, number of samples, metrics).

        The agent uploads the trained parameters minus the received ones. A `probe` needs no special
        treatment: train as usual. The server compares the results of probes to find similar
        clients.
        """

    def evaluate(
        self, parameters: Parameters, config: Config
    ) -> tuple[float, int, Mapping[str, Any]]:
        """Evaluates on the client's test samples; returns (loss, number of samples, metrics).

        The agent calls this method with every model that the client receives, but not with the
        model of a probe. If the metrics include `accuracy` (0 to 1), the console and the records
        show it.
        """


class FitEvaluate:
    """Wraps your own client, so that it can take part in a federation.

    Args:
        client: your client.
        experiment: the part of the experiment that clients get.
        name: id of the client.
        folder: folder that keeps the newest upload, so that a restarted client can send it again.
        sample_cap: maximum number of samples that the client may claim.
        thread: executor for the client's computations.
        dtype: data type of uploads: F32, F16 or BF16.
    """

    def __init__(
        self,
        client: Client,
        experiment: Experiment,
        name: str,
        folder: Path,
        sample_cap: int,
        thread: Executor | None = None,
        dtype: str = "F32",
    ) -> None:
        self._client = client
        self._training = experiment.training.model_dump(mode="json")
        self._name = name
        self._keeper = RunFiles(folder)
        self._sample_cap = sample_cap
        self._compute = compute_on(thread)
        self._dtype = dtype

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        """Trains; if an upload for this ticket is already stored, returns that upload instead."""
        kept = self._keeper.upload(ticket)
        if kept is not None:
            return kept
        return await self._compute(self._fit, ticket, model)

    async def evaluate(self, ticket: Ticket, model: bytes) -> dict[str, float]:
        """Computes the metrics of the final model."""
        return await self._compute(self._evaluate, ticket, model)

    async def idle(self, ticket: Ticket) -> None:
        """Does nothing."""

    def _fit(self, ticket: Ticket, model: bytes) -> bytes:
        received, spec = tensors(model)
        config = self._config(ticket, spec)
        measured = {} if ticket.kind == "probe" else self._evaluate(ticket, model)
        own = [array.copy() for array in received]
        trained, samples, metrics = parts(self._client.fit(own, config), "fit", "parameters")
        arrays = check(trained, spec)
        with np.errstate(over="ignore", invalid="ignore"):  # Overflow means divergence.
            update_D = np.concatenate(
                [(new - old).ravel() for new, old in zip(arrays, received, strict=True)]
            ).astype(np.float32)
        update_D, diverged = sendable(update_D, self._dtype)
        if samples < 1:
            raise ConfigurationError(f"fit trained on {samples} samples; it needs at least 1")
        counts = {"train_samples": float(samples), **measured}
        report = ClientReport(
            samples=min(samples, self._sample_cap),
            metrics=numbers(metrics, counts),
            diverged=diverged,
        )
        upload = wire.encode(spec, update_D, claims(report), self._dtype)
        self._keeper.keep(ticket, upload, {})
        return upload

    def _evaluate(self, ticket: Ticket, model: bytes) -> dict[str, float]:
        received, spec = tensors(model)
        answer = self._client.evaluate(received, self._config(ticket, spec))
        loss, samples, metrics = parts(answer, "evaluate", "loss")
        counts = {"test_samples": float(samples)}
        # Two numbers are added: `correct_customized` below, and `train_samples` in the report.
        measured = numbers({"loss": loss, **metrics}, counts, MOST_METRICS - 2)
        if "accuracy" in measured:
            measured["correct_customized"] = measured["accuracy"] * samples
        return measured

    def _config(self, ticket: Ticket, spec: ModelSpec) -> Config:
        return {
            **self._training,
            "round": ticket.round,
            "kind": ticket.kind,
            "client": self._name,
            "tensors": [tensor.name for tensor in spec.tensors],
        }


def tensors(model: bytes) -> tuple[Parameters, ModelSpec]:
    """The float32 tensors of the aggregator's model, sorted by name, and the model's spec."""
    spec = wire.spec_in(model)
    vector_D = wire.read_model(model, spec)
    shaped = zip(spec.tensors, spec.layout, strict=True)
    return [vector_D[start:stop].reshape(one.shape) for one, (_, start, stop) in shaped], spec


def parts(answer: object, method: str, first: str) -> tuple[Any, int, Mapping[str, Any]]:
    """The three values that a client's method returned; raises an error if they have wrong types.

    >>> parts((0.5, 4, {"accuracy": 1}), "evaluate", "loss")
    (0.5, 4, {'accuracy': 1})
    >>> parts((0.5, 12.5, {}), "evaluate", "loss")
    Traceback (most recent call last):
    rampart_fl.shared.errors.ConfigurationError: evaluate returned 12.5 as the number of samples; \
it must be a whole number from 0 to 1000000000
    """
    must = f"{method} must return ({first}, number of samples, metrics)"
    if not isinstance(answer, Sequence) or len(answer) != 3:
        raise ConfigurationError(f"{must}, not {reprlib.repr(answer)}")
    value, samples, metrics = answer
    if not isinstance(metrics, Mapping):
        raise ConfigurationError(f"{must}; the metrics must be a dict, not {reprlib.repr(metrics)}")
    try:
        whole = float(samples).is_integer() and 0 <= samples <= MOST_SAMPLES
    except (TypeError, ValueError):
        whole = False
    if not whole:
        raise ConfigurationError(
            f"{method} returned {reprlib.repr(samples)} as the number of samples; it must be a "
            f"whole number from 0 to {MOST_SAMPLES}"
        )
    return value, int(samples), metrics


def check(parameters: Sequence[Any], spec: ModelSpec) -> list[NDArray[np.float64]]:
    """Converts a client's parameters to float64; raises an error if their shapes are wrong.

    >>> check([[1.0, 2.0]], ModelSpec.of([("w", (3,))]))
    Traceback (most recent call last):
    rampart_fl.shared.errors.ConfigurationError: fit returned shapes [(2,)]; the model has w (3,)
    """
    try:
        arrays = [np.asarray(array, dtype=np.float64) for array in parameters]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"fit must return arrays of numbers: {error}") from None
    if [array.shape for array in arrays] != [tensor.shape for tensor in spec.tensors]:
        expected = ", ".join(f"{tensor.name} {tensor.shape}" for tensor in spec.tensors)
        shapes = [array.shape for array in arrays]
        raise ConfigurationError(f"fit returned shapes {shapes}; the model has {expected}")
    return arrays


def numbers(
    metrics: Mapping[str, Any],
    counts: Mapping[str, float] = MappingProxyType({}),
    most: int = MOST_METRICS,
) -> dict[str, float]:
    """The metrics that can be reported; the given counts replace metrics with the same names.

    At most `most` numbers can be reported. The last metrics are left out first.

    A metric can be reported if its value is finite and its name is in lower case. An accuracy must
    also be between 0 and 1. A count must pass the check `wrong_counts`.

    >>> numbers({"accuracy": 0.5, "loss": float("nan"), "note": "warm"}, {"test_samples": 4})
    {'test_samples': 4, 'accuracy': 0.5}
    """
    kept: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            kept |= ClientReport(samples=1, metrics={name: float(value)}).metrics
        except (ValidationError, TypeError, ValueError):
            _warn(name, value)
    kept = {**counts, **kept, **counts}
    for name in list(kept)[most:]:
        _warn(name, kept.pop(name))
    wrong = [*wrong_counts(kept), *([] if 0 <= kept.get("accuracy", 0) <= 1 else ["accuracy"])]
    for name in wrong:
        _warn(name, kept.pop(name))
    return kept


def _warn(name: str, value: object) -> None:
    log.warning("the metric %.100r with value %.100r cannot be reported", name, value)


def custom(make: Callable[[int], Client]) -> Build:
    """Builds participants from your own clients; `make(slot)` makes the client for a slot."""

    async def build(context: AgentContext) -> FitEvaluate:
        loop = asyncio.get_running_loop()
        return FitEvaluate(
            await loop.run_in_executor(context.thread, make, context.slot),
            context.experiment,
            context.client,
            context.folder,
            context.sample_cap,
            context.thread,
            context.settings.upload_dtype,
        )

    return build


def from_path(path: str) -> Build:
    """Builds participants as `custom` does; `path` (MODULE:FUNCTION) names the function `make`."""
    return custom(load_callable(path, "a client"))


def take_part(
    client: Client,
    aggregator: str,
    join_token: str | None = None,
    state: str | Path = "client-state",
    **settings: Any,
) -> None:
    """Takes part in a federation's runs until the process is stopped, or the client is barred.

    Args:
        client: your client.
        aggregator: URL of the aggregator.
        join_token: join token; needed only the first time.
        state: folder for the client's identity. A restarted process that uses the same folder is
            the same client.
        settings: further fields of `AgentSettings`, such as `ca_certificate`.
    Raises:
        ExceptionGroup: the exceptions that made the client fail.
    """
    known = AgentSettings(
        aggregator=aggregator, join_token=join_token, state=Path(state), **settings
    )
    asyncio.run(host(known, custom(lambda slot: client)))
