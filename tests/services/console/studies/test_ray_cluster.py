"""Studies on a Ray cluster of two nodes, one of which dies."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rampart_fl.services.console.studies import ray_cluster
from rampart_fl.services.console.studies.batch import run_all
from rampart_fl.services.console.studies.pools import pool
from rampart_fl.services.console.studies.ray_cluster import RayCluster
from rampart_fl.shared.errors import ConfigurationError, PreconditionError, Unavailable
from tests.services.console.studies.test_batch import until
from tests.services.console.studies.test_pools import SWEEP

Rampart = Callable[..., Any]
ROOT = Path(__file__).parents[4]
pytestmark = [
    pytest.mark.ray,
    pytest.mark.processes,
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
]
if importlib.util.find_spec("ray") is None:
    pytest.skip(
        "ray is not installed: make test-ray checks studies on a Ray cluster",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two nodes with one core each; this process runs on the first node."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        nodes = Cluster(initialize_head=True, head_node_args=head)
        nodes.add_node(num_cpus=1)
        yield nodes
        nodes.shutdown()


def test_node_failure_repeats_only_the_runs_in_flight(cluster: Any, tmp_path: Path) -> None:
    (doomed,) = cluster.worker_nodes
    lost = doomed.node_id

    def run(n: int) -> dict[str, Any]:
        import ray

        here = ray.get_runtime_context().get_node_id()
        (tmp_path / f"{n}-{uuid4()}").write_text(here)
        # The doomed node never ends a run; the other one waits until the doomed one has begun.
        while here == lost or not any(p.read_text() == lost for p in tmp_path.iterdir()):
            time.sleep(0.05)
        return {"square": n * n}

    table = {}
    for n, figures in run_all(run, range(8), pool(ray=cluster.address)):
        if not table:
            cluster.remove_node(doomed, allow_graceful=False)
        table[n] = figures["square"]
    assert table == {n: n * n for n in range(8)}
    starts = Counter(int(path.name.partition("-")[0]) for path in tmp_path.iterdir())
    (again,) = (path for path in tmp_path.iterdir() if path.read_text() == lost)
    assert starts == {n: 2 if again.name.startswith(f"{n}-") else 1 for n in range(8)}


def test_sweep_on_ray_matches_a_local_sweep_and_can_be_resumed(
    cluster: Any, rampart: Rampart, tmp_path: Path
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP)
    here, there = tmp_path / "here", tmp_path / "there"
    assert rampart("simulate", str(file), "--out", str(here)).code == 0
    words = ["simulate", str(file), "--ray", cluster.address, "--out", str(there)]
    said = rampart(*words)
    assert said.code == 0, said.err
    runs = sorted(path.name for path in (here / "runs").iterdir())
    assert len(runs) == 4 and runs == sorted(path.name for path in (there / "runs").iterdir())
    for name in runs:
        local, remote = (json.loads((at / "runs" / name).read_text()) for at in (here, there))
        assert local["models_digest"] == remote["models_digest"]
        assert without_times(local) == without_times(remote)
    first, *others = (there / "runs" / name for name in runs)
    times = [path.stat().st_mtime_ns for path in others]
    first.unlink()
    assert rampart(*words, "--resume").code == 0
    assert first.exists() and [path.stat().st_mtime_ns for path in others] == times


def test_ctrl_c_keeps_finished_results_for_a_resumed_study(
    rampart: Rampart, tmp_path: Path
) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    points = 2 * 20
    seeds = list(range(1, points // 2 + 1))
    file.write_text(SWEEP.replace("[1, 2]", str(seeds)).replace("rounds = 1", "rounds = 20"))
    words = ["simulate", str(file), "--ray", "local", "--out", str(out)]

    def finished() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (out / "runs").glob("*.json")}

    with subprocess.Popen(
        [sys.executable, "-m", "rampart_fl.services.console", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # A terminal sends Ctrl-C to all processes of the session, including Ray's own.
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as started:
        until(lambda: bool(finished()) or started.poll() is not None, patience=120)
        os.killpg(started.pid, signal.SIGINT)
        _, said = started.communicate(timeout=60)
    assert started.returncode == 130 and said.endswith(b"interrupted\n"), said.decode()
    before = finished()
    assert 0 < len(before) < points
    resumed = rampart(*words, "--resume")
    assert resumed.code == 0, resumed.err
    after = finished()
    assert len(after) == points and before.items() <= after.items()
    for name in after:
        assert json.loads((out / "runs" / name).read_text())["models_digest"]


def test_other_studies_on_ray_match_local_studies(
    cluster: Any, rampart: Rampart, tmp_path: Path
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SWEEP.partition("[sweep]")[0])
    studies: dict[str, list[str]] = {
        "certify": [str(file), "--subsets", "3", "--size", "2"],
        "matrix": [
            *(str(file), "--attacks", "none,sign_flip"),
            *("--defences", "median", "--seeds", "1"),
        ],
        "reproduce": ["fedcap-table-1", "--scale", "smoke", "--seeds", "1"],
    }
    for name, words in studies.items():
        results = []
        for place in ("here", "there"):
            out = str(tmp_path / name / place)
            where = ["--ray", cluster.address] if place == "there" else []
            said = rampart(name, *words, *where, "--out", out, "--json")
            assert said.code == 0, said.err
            results.append(without_times(json.loads(said.out)))
        assert results[0] == results[1], name
    assert not list((tmp_path / "reproduce" / "there" / "runs").iterdir())


def without_times(value: Any) -> Any:
    """JSON without measured times."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if "seconds" not in k}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def test_exception_on_a_node_is_raised_unchanged(cluster: Any) -> None:
    def run(n: int) -> dict[str, Any]:
        raise PreconditionError(f"{n} rows are too few")

    with pytest.raises(PreconditionError, match=r"^4 rows are too few$"):
        list(run_all(run, [4], pool(ray=cluster.address)))


def test_node_with_other_library_versions_is_refused(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "versions", lambda: {"torch": "0.1"})
    with pytest.raises(ConfigurationError, match="install the same versions everywhere"):
        list(run_all(abs, [1], pool(ray=cluster.address)))


def test_address_without_a_ray_cluster_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match=f"no Ray cluster answers at {address}"):
            RayCluster(address)
    with pytest.raises(ConfigurationError, match="give HOST:PORT, auto or local"):
        RayCluster("somewhere")


def test_machine_with_too_few_cores_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a run needs 1000000 cores"):
        RayCluster("local", cores=1_000_000)
