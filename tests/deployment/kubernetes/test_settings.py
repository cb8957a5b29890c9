"""Containers get settings that exist, and the ports, paths and folders that these name."""

import math
import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from rampart_fl.services.aggregator.server import DRAIN
from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.learning.data.datasets.files import VARIABLE as DATA
from tests.deployment.kubernetes.conftest import NO_SERVICE, OWNER, TLS


@pytest.fixture
def settings(manifests: Any, settings_of: Any) -> Callable[[Any], Any]:
    """The settings with which a pod of ours would run; None for Redis."""

    def read(pod: Any) -> Any:
        if pod.component in NO_SERVICE:
            return None
        return settings_of(
            pod.container["command"], manifests.variables(pod), manifests.secret_files(pod)
        )

    return read


def test_every_setting_is_known_and_valid(manifests: Any, settings: Any) -> None:
    read = {pod.component: settings(pod) for pod in manifests.pods}
    assert {"api", "worker", "join-tokens", "agents"} <= read.keys()
    assert (read["api"].role, read["worker"].role) == ("api", "worker")


def test_clients_of_a_stateful_set_never_exit_by_themselves(manifests: Any, settings: Any) -> None:
    # Kubernetes restarts every process of a StatefulSet that exits.
    sets = {pod.name for pod in manifests.pods if pod.owner["kind"] == "StatefulSet"}
    read = {pod.name: settings(pod) for pod in manifests.pods if pod.name in sets}
    clients = {name: found for name, found in read.items() if isinstance(found, AgentSettings)}
    assert "rampart-agents" in clients
    assert all(found.stay_when_barred for found in clients.values())


def test_container_ports_match_the_ports_in_the_settings(manifests: Any, settings: Any) -> None:
    for pod in manifests.pods:
        values = settings(pod)
        ports = {port["name"]: port["containerPort"] for port in pod.container.get("ports", [])}
        if values is None:
            assert ports == ({"redis": 6379} if pod.component == "redis" else {})
        elif hasattr(values, "port"):
            measured = getattr(values, "metrics_port", None)
            assert ports == {"http": values.port} | ({"metrics": measured} if measured else {})
            assert (measured is not None) == (pod.component in {"api", "worker"})
            assert values.host == "0.0.0.0"
        else:
            assert ports == {}


def test_services_target_the_ports_of_their_pods(manifests: Any, selects: Any) -> None:
    for service in manifests.of("Service"):
        spec = service["spec"]
        behind = [p for p in manifests.pods if selects({"matchLabels": spec["selector"]}, p.labels)]
        assert len(behind) == 1, service["metadata"]["name"]
        named = {
            port["name"]: port["containerPort"] for port in behind[0].container.get("ports", [])
        }
        for port in spec.get("ports", []):
            assert named[port["targetPort"]] == port["port"]
    # Kubernetes would make NAME_PORT variables of services, which look like settings.
    for pod in manifests.pods:
        assert pod.spec["enableServiceLinks"] is False


def test_urls_name_existing_services_and_ports(manifests: Any) -> None:
    tls = "RAMPART_TLS_KEY" in manifests.variables(manifests.pod("api"))
    for pod in manifests.pods:
        for name, value in manifests.variables(pod).items():
            if name in {"RAMPART_AGGREGATOR", "RAMPART_COHORT", "RAMPART_REDIS_URL"}:
                url = re.fullmatch(r"(\w+)://([\w.-]+):(\d+)(/\d+)?(\?.*)?", value)
                assert url is not None
                if url[2] == "redis.example":
                    continue
                service = manifests.named("Service", url[2])
                assert int(url[3]) in {port["port"] for port in service["spec"]["ports"]}
                if name == "RAMPART_AGGREGATOR":
                    assert url[1] == ("https" if tls else "http")
                    trusts = "RAMPART_CA_CERTIFICATE" in manifests.variables(pod)
                    assert trusts == tls


def test_trusted_proxies_are_networks_that_uvicorn_accepts(manifests: Any) -> None:
    trusted = manifests.variables(manifests.pod("api")).get("FORWARDED_ALLOW_IPS")
    # An api that only the cluster reaches has no proxy.
    assert (trusted is not None) == bool(manifests.of("Ingress") or manifests.of("HTTPRoute"))
    for one in (trusted or "127.0.0.1").split(","):
        ip_network(one.strip())


def test_probes_request_paths_that_are_served(manifests: Any, app_paths: Any) -> None:
    for pod in manifests.pods:
        ports = {port["name"] for port in pod.container.get("ports", [])}
        probes = {n: p for n, p in pod.container.items() if n.endswith("Probe")}
        assert bool(probes) == bool(ports)
        tls = "RAMPART_TLS_KEY" in manifests.variables(pod)
        for name, probe in probes.items():
            asked = probe.get("httpGet") or probe.get("tcpSocket")
            if asked is not None:
                assert asked["port"] in ports
            if "httpGet" in probe:
                assert asked["path"] in {"/healthz", "/readyz"} <= app_paths(pod.component)
                assert asked.get("scheme", "HTTP") == ("HTTPS" if tls else "HTTP")
                # A probe that depends on Redis must never restart the process.
                assert (asked["path"] == "/readyz") == (name == "readinessProbe")


def test_every_mount_has_its_volume_and_every_volume_its_source(manifests: Any) -> None:
    claims = {one["metadata"]["name"] for one in manifests.of("PersistentVolumeClaim")}
    for pod in manifests.pods:
        own = {c["metadata"]["name"] for c in pod.owner["spec"].get("volumeClaimTemplates", [])}
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        mounted = {m["name"] for container in pod.containers for m in container["volumeMounts"]}
        assert mounted == own | volumes.keys()
        for container in pod.containers:
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(set(paths)) == len(paths)
        for volume in volumes.values():
            if "configMap" in volume:
                assert manifests.data(volume["configMap"]["name"])
            if "secret" in volume:
                keys = OWNER | TLS
                for item in volume["secret"].get("items", []):
                    assert item["key"] in keys
                assert volume["secret"]["defaultMode"] == 0o440
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims | {"data"}
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"]


def test_folders_and_files_of_the_settings_are_mounted(manifests: Any, settings: Any) -> None:
    for pod in manifests.pods:
        values = settings(pod)
        if values is None:
            continue
        mounts = {m["mountPath"]: m for m in pod.container["volumeMounts"]}
        writable = [path for path, mount in mounts.items() if not mount.get("readOnly")]
        for name in ("blobs", "blob_cache", "state"):
            folder = getattr(values, name, None)
            if folder is not None and "://" not in str(folder):
                assert any(PurePosixPath(folder).is_relative_to(path) for path in writable), folder
        for name in ("experiment", "join_tokens", "tls_certificate", "tls_key", "ca_certificate"):
            path = getattr(values, name, None)
            if path is None:
                continue
            path = PurePosixPath(path)
            if str(path) in mounts:
                assert mounts[str(path)]["subPathExpr"] == "$(POD_NAME)"
                continue
            (volume,) = [
                v for v in pod.spec["volumes"] if v["name"] == mounts[str(path.parent)]["name"]
            ]
            if "configMap" in volume:
                keys = set(manifests.data(volume["configMap"]["name"]))
            else:
                keys = {item["path"] for item in volume["secret"].get("items", [])} or TLS
            assert path.name in keys


def test_data_sets_are_mounted_in_every_pod_that_reads_them(manifests: Any) -> None:
    claimed = any("'claimName': 'data'" in str(pod.spec) for pod in manifests.pods)
    for pod in manifests.pods:
        mounts = [m for m in pod.container["volumeMounts"] if m["name"] == "data"]
        if pod.component not in {"worker", "agents", "attackers"} or not claimed:
            assert DATA not in manifests.variables(pod)
            continue
        folder = manifests.variables(pod)[DATA]
        assert mounts == [{"name": "data", "mountPath": folder, "readOnly": True}]
        (volume,) = [v for v in pod.spec["volumes"] if v["name"] == "data"]
        assert volume["persistentVolumeClaim"] == {"claimName": "data", "readOnly": True}


def test_threads_match_the_cpu_limit_and_grace_periods_cover_draining(
    manifests: Any, settings: Any
) -> None:
    worker = manifests.pod("worker")
    limit = worker.container["resources"]["limits"]["cpu"]
    assert settings(worker).threads == math.ceil(float(limit))
    for component in ("api", "worker"):
        spec = manifests.pod(component).spec
        pause = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {})
        seconds = int(pause.get("command", ["sleep", "0"])[1])
        assert spec["terminationGracePeriodSeconds"] > DRAIN + seconds


def test_cache_of_an_object_store_has_room_for_its_limit_and_the_files_of_the_worker(
    root: Path, load: Callable[[str], list[Any]], manifests: Any, settings: Any
) -> None:
    (values,) = load((root / "k8s/chart/values.yaml").read_text())
    for component in ("api", "worker"):
        pod = manifests.pod(component)
        if "://" not in settings(pod).blobs:
            continue
        (cache,) = [volume for volume in pod.spec["volumes"] if volume["name"] == "cache"]
        room = int(cache["emptyDir"]["sizeLimit"].removesuffix("Gi"))
        scratch = values["worker"]["scratchGiB"] if component == "worker" else 0
        assert room == settings(pod).blob_cache_gib + 1 + scratch


def test_gpu_is_requested_exactly_if_the_worker_uses_cuda(manifests: Any, settings: Any) -> None:
    worker = manifests.pod("worker")
    cuda = settings(worker).device.startswith("cuda")
    assert ("nvidia.com/gpu" in worker.container["resources"]["limits"]) == cuda
    assert ("runtimeClassName" in worker.spec) == ("nodeSelector" in worker.spec) == cuda
    if cuda:
        assert worker.owner["spec"]["replicas"] == 1
        assert worker.container["resources"]["requests"]["memory"] == "8Gi"


def test_workers_have_stable_names(manifests: Any, settings: Any) -> None:
    worker = manifests.pod("worker")
    assert worker.owner["kind"] == "StatefulSet"
    assert settings(worker).worker_id == "rampart-worker-0"


def test_pods_for_which_clients_wait_have_priority_over_clients(manifests: Any) -> None:
    # On a full cluster, clients that wait for join tokens would hold what these pods need.
    (made,) = manifests.of("PriorityClass")
    assert made["value"] > 0
    for pod in manifests.pods:
        first = pod.component in {"redis", "api", "worker", "join-tokens", "cohort"}
        assert (pod.spec.get("priorityClassName") == made["metadata"]["name"]) == first


def test_resource_requests_of_a_federation_fit_a_single_node(manifests: Any, settings: Any) -> None:
    # Two processors and 4 GiB, less what the cluster itself takes.
    total = {"cpu": 0.0, "memory": 0.0}
    for pod in manifests.pods:
        requests = pod.container["resources"]["requests"]
        count = pod.owner["spec"].get("replicas", 1)
        total["cpu"] += count * _number(requests["cpu"])
        total["memory"] += count * _number(requests["memory"])
    if settings(manifests.pod("worker")).threads == 1:
        assert total["cpu"] <= 1.2
        assert total["memory"] <= 4 * 2**30


def _number(quantity: str) -> float:
    """The number that a quantity of Kubernetes means."""
    units = {"m": 1e-3, "Mi": 2.0**20, "Gi": 2.0**30}
    for unit, factor in units.items():
        if quantity.endswith(unit):
            return float(quantity.removesuffix(unit)) * factor
    return float(quantity)
