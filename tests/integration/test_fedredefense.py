"""FedREDefense in the services: the synthetic samples of each client survive kill -9."""

from pathlib import Path

import pytest

from benchmarks import chaos
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides


@pytest.mark.long
@pytest.mark.timeout(400)
def test_killed_aggregator_resumes_with_the_same_synthetic_samples(tmp_path: Path) -> None:
    experiment = Experiment.load("fedredefense")
    (tmp_path / "calm").mkdir()
    (tmp_path / "shaken").mkdir()
    calm = chaos.run(experiment, tmp_path / "calm")
    scores = [{v["client"]: v["score"] for v in record["verdicts"]} for record in calm.records]
    honest, hostile = sides(experiment)
    assert [sorted(score) for score in scores] == [experiment.client_names, honest, honest]
    assert sorted(calm.evicted) == hostile
    assert all(score[client] < 0.6 for score in scores for client in honest)
    assert min(scores[0][client] for client in hostile) > 0.9

    shaken = chaos.run(experiment, tmp_path / "shaken", chaos.randomly(kills=1, longest=3, seed=2))
    assert shaken.kills == ["aggregator"]
    assert chaos.difference(calm.outcome(), shaken.outcome()) is None
