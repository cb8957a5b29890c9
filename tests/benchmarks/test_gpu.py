"""benchmarks/gpu.py, a script for a quarter of an hour on a GPU, runs on the CPU."""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data import client_data
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE
from tests.fake_device import NAME, PretendedDevice


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains one epoch on few samples: more would only repeat the same steps."""
    load = Experiment.load

    def short(name: str) -> Experiment:
        result = load(name)
        training = result.training.model_copy(update={"epochs": 1})
        data = result.data.model_copy(update={"samples": 40})
        return result.model_copy(update={"training": training, "data": data})

    monkeypatch.setattr(Experiment, "load", short)


@pytest.fixture
def _no_images_are_remembered() -> Iterator[None]:
    """Later tests in this process must not get the random images as CIFAR-10."""
    client_data._samples.cache_clear()
    yield
    client_data._samples.cache_clear()


def test_agreement_of_the_cpu_with_itself_is_exact() -> None:
    text, alike = gpu.agreement("cpu", ("digits-hmsdfl",))
    assert alike and "| digits-hmsdfl | 0.0e+00 | equal |" in text


@pytest.mark.slow
def test_agreement_compares_rounds_on_another_device_with_the_cpu() -> None:
    with PretendedDevice():
        text, alike = gpu.agreement(NAME, ("digits-hmsdfl",))
    assert alike and re.search(r"\| digits-hmsdfl \| [\d.]+e[-+]\d\d \| equal \|", text)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", NAME])
@pytest.mark.usefixtures("_no_images_are_remembered")
def test_cell_trains_on_random_images_without_cifar_10(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv(CACHE, str(tmp_path))
    with PretendedDevice() if device == NAME else nullcontext():
        text = gpu.cell(device, rounds=1, samples=12, limit=60)
    assert re.search(r"\| 1 \| [\d.]+ \| [\d.]+ \| [\d.]+ \| random data \|", text)


def test_script_exits_with_a_hint_if_cuda_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == gpu.NO_CUDA
    assert "python benchmarks/gpu.py --device cpu --smoke" in capsys.readouterr().err
