"""Copies runs to MLflow: to a server, or to a database file such as `sqlite:///mlflow.db`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rampart_fl.services.console.tracking.tracker import TrackerUnavailable, missing_library

LONGEST = 500
"""Maximum number of characters in a parameter; older servers reject longer parameters."""
PARAMETERS, METRICS = 100, 1000
"""One request to MLflow has at most `PARAMETERS` parameters or tags, and at most `METRICS`
metrics."""


class MlflowTracker:
    """A run in MLflow.

    Args:
        destination: MLflow's tracking URI.
        experiment: the name of the experiment in MLflow; created if missing.
        name: the run's name.
    Raises:
        TrackerUnavailable: mlflow is not installed, or refuses the destination.
    """

    def __init__(self, destination: str, experiment: str, name: str) -> None:
        try:
            import mlflow
        except ImportError:
            raise missing_library("mlflow") from None
        self._mlflow: Any = mlflow
        self._experiment, self._name, self._run = experiment, name, ""
        with self._converted_errors():
            self._client = mlflow.MlflowClient(tracking_uri=destination)

    def begin(self, parameters: Mapping[str, str], facts: Mapping[str, str], at: float) -> None:
        """See `Tracker`; facts become tags."""
        with self._converted_errors():
            known = self._client.get_experiment_by_name(self._experiment)
            number = known.experiment_id if known else self._create()
            run = self._client.create_run(number, milliseconds(at), run_name=self._name)
            self._run = run.info.run_id
            settings = [
                self._mlflow.entities.Param(key, value[:LONGEST])
                for key, value in parameters.items()
            ]
            for some in pieces(settings, PARAMETERS):
                self._client.log_batch(self._run, params=some)
            self._tag(facts)

    def round(
        self, number: int, metrics: Mapping[str, float], events: Mapping[str, str], at: float
    ) -> None:
        """See `Tracker`; events become tags."""
        with self._converted_errors():
            self._measure(metrics, at, number)
            self._tag({f"barred.{key(client)}": text for client, text in events.items()})

    def end(
        self, figures: Mapping[str, float], facts: Mapping[str, str], folder: Path, at: float
    ) -> None:
        """See `Tracker`; stores the run's files as artifacts."""
        with self._converted_errors():
            self._measure({f"final.{name}": value for name, value in figures.items()}, at, 0)
            self._tag(facts)
            self._client.log_artifacts(self._run, str(folder))
            self._client.set_terminated(self._run, "FINISHED", milliseconds(at))

    def fail(self) -> None:
        """See `Tracker`."""
        with self._converted_errors():
            self._client.set_terminated(self._run, "FAILED")

    def _create(self) -> str:
        return str(self._client.create_experiment(self._experiment))

    def _measure(self, metrics: Mapping[str, float], at: float, step: int) -> None:
        values = [
            self._mlflow.entities.Metric(name, value, milliseconds(at), step)
            for name, value in metrics.items()
        ]
        for some in pieces(values, METRICS):
            self._client.log_batch(self._run, metrics=some)

    def _tag(self, facts: Mapping[str, str]) -> None:
        tags = [
            self._mlflow.entities.RunTag(f"rampart.{name}", value[:LONGEST])
            for name, value in facts.items()
        ]
        for some in pieces(tags, PARAMETERS):
            self._client.log_batch(self._run, tags=some)

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Converts an exception of MLflow to `TrackerUnavailable`."""
        try:
            yield
        except self._mlflow.exceptions.MlflowException as error:
            raise TrackerUnavailable(f"MLflow: {error}") from None


def milliseconds(at: float) -> int:
    """Converts Unix seconds to the milliseconds that MLflow expects."""
    return int(1000 * at)


def key(text: str) -> str:
    """Replaces the characters that MLflow does not allow in the key of a tag.

    >>> key("client-07"), key("<img>")
    ('client-07', '_img_')
    """
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)[:200]


def pieces(values: Sequence[Any], most: int) -> list[Sequence[Any]]:
    """Splits values into chunks of at most `most` values.

    >>> pieces([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    return [values[i : i + most] for i in range(0, len(values), most)]
