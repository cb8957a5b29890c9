"""Pods have few permissions, and reach only what they need."""

import re
from collections.abc import Callable
from typing import Any

import pytest

DNS = 53


def restricted(spec: dict[str, Any]) -> None:
    """Holds a pod to the restricted standard, with a read-only file system besides."""
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        assert name not in spec
    for container in spec["containers"]:
        own = dict(container["securityContext"])
        assert own.pop("runAsUser", 1) > 0
        own.pop("runAsGroup", None)
        assert own == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert not container["image"].endswith(":latest")
        assert ":" in container["image"]


def test_every_pod_is_restricted(manifests: Any) -> None:
    for pod in manifests.pods:
        restricted(pod.spec)
        user = 999 if pod.component == "redis" else 10001
        assert pod.spec["securityContext"]["runAsUser"] == user
    (namespace,) = manifests.of("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_so_is_the_pod_that_restores(root: Any, load: Callable[[str], list[Any]]) -> None:
    (pod,) = load((root / "k8s/restore.yaml").read_text())
    restricted(pod["spec"])
    claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"]}
    assert claims == {"redis": "data-redis-0", "blobs": "blobs"}
    # Redis makes files that their owner alone may read, and not every volume applies fsGroup.
    users = {}
    for container in pod["spec"]["containers"]:
        (mount,) = container["volumeMounts"]
        context = {**pod["spec"]["securityContext"], **container["securityContext"]}
        users[mount["name"]] = (context["runAsUser"], context["runAsGroup"])
    assert users == {"redis": (999, 999), "blobs": (10001, 10001)}
    manual = (root / "docs/operations.md").read_text()
    named = set(re.findall(r"restore -c (\w+) -- \S.*? (/restore/\w+)", manual))
    assert named == {
        (c["name"], c["volumeMounts"][0]["mountPath"]) for c in pod["spec"]["containers"]
    }


def test_one_job_alone_may_speak_to_the_cluster(manifests: Any) -> None:
    with_account = {p.component for p in manifests.pods if p.spec["automountServiceAccountToken"]}
    assert with_account == {"join-tokens"}
    (role,) = manifests.of("Role")
    secret = manifests.variables(manifests.pod("join-tokens"))["RAMPART_TOKENS_SECRET"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]},
    ]
    (binding,) = manifests.of("RoleBinding")
    (account,) = manifests.of("ServiceAccount")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert manifests.pod("join-tokens").spec["serviceAccountName"] == account["metadata"]["name"]


def test_selectors_agree_with_labels(manifests: Any, selects: Any) -> None:
    for pod in manifests.pods:
        selector = pod.owner["spec"].get("selector")
        if selector is not None:
            assert [p.name for p in manifests.pods if selects(selector, p.labels)] == [pod.name]
        if pod.owner["kind"] == "StatefulSet":
            assert manifests.named("Service", pod.owner["spec"]["serviceName"])
    for budget in manifests.of("PodDisruptionBudget"):
        chosen = [p for p in manifests.pods if selects(budget["spec"]["selector"], p.labels)]
        assert len(chosen) == 1
        assert chosen[0].owner["spec"]["replicas"] > budget["spec"].get("minAvailable", 0)


Allowed = Callable[[str, Any, Any, int], bool]


@pytest.fixture
def allowed(manifests: Any, selects: Any) -> Allowed:
    """Whether all policies together allow a connection to or from a pod at a port."""
    policies = [policy["spec"] for policy in manifests.of("NetworkPolicy")]

    def decide(way: str, source: Any, target: Any, port: int) -> bool:
        judged, peer, peers = (
            (target, source, "from") if way == "Ingress" else (source, target, "to")
        )
        applying = [
            policy
            for policy in policies
            if way in policy["policyTypes"] and selects(policy["podSelector"], judged.labels)
        ]
        named = {p["name"]: p["containerPort"] for p in target.container.get("ports", [])}

        def passes(rule: dict[str, Any]) -> bool:
            ports = [named.get(one["port"], one["port"]) for one in rule.get("ports", [])]
            here = [one for one in rule.get(peers, []) if "namespaceSelector" not in one]
            known = peers not in rule or any(selects(o["podSelector"], peer.labels) for o in here)
            return known and (not ports or port in ports)

        rules = [rule for policy in applying for rule in policy.get(way.lower(), [])]
        return not applying or any(passes(rule) for rule in rules)

    return decide


def test_who_is_let_in(manifests: Any, allowed: Allowed) -> None:
    everybody = {pod.component for pod in manifests.pods}
    expected = {
        "api": everybody,
        "redis": {"api", "worker"},
        "cohort": {"attackers"},
        "worker": set(),
    }
    for target in manifests.pods:
        for port in target.container.get("ports", []):
            found = {
                source.component
                for source in manifests.pods
                if allowed("Ingress", source, target, port["containerPort"])
            }
            assert found == expected[target.component] & everybody, target.component


def test_whom_clients_may_speak_to(manifests: Any, allowed: Allowed) -> None:
    expected = {"agents": {"api"}, "attackers": {"api", "cohort"}, "redis": set(), "cohort": set()}
    for source in manifests.pods:
        found = {
            target.component
            for target in manifests.pods
            for port in target.container.get("ports", [])
            if allowed("Egress", source, target, port["containerPort"])
        }
        if source.component in expected:
            there = {pod.component for pod in manifests.pods}
            assert found == expected[source.component] & there, source.component


def test_every_policy_concerns_somebody(manifests: Any, selects: Any) -> None:
    for policy in manifests.of("NetworkPolicy"):
        spec = policy["spec"]
        chosen = [pod for pod in manifests.pods if selects(spec["podSelector"], pod.labels)]
        assert chosen, policy["metadata"]["name"]
        for way, peers in (("ingress", "from"), ("egress", "to")):
            assert way not in spec or way.capitalize() in spec["policyTypes"]
            for rule in spec.get(way, []):
                for peer in rule.get(peers, []):
                    if "namespaceSelector" not in peer:
                        assert any(selects(peer["podSelector"], p.labels) for p in manifests.pods)


def test_clients_may_ask_for_names(manifests: Any, selects: Any) -> None:
    for pod in manifests.pods:
        if pod.component in {"agents", "attackers"}:
            ports = {
                (port["protocol"], port["port"])
                for policy in manifests.of("NetworkPolicy")
                if selects(policy["spec"]["podSelector"], pod.labels)
                for rule in policy["spec"].get("egress", [])
                for port in rule["ports"]
            }
            assert {("UDP", DNS), ("TCP", DNS)} <= ports


def test_prometheus_finds_what_it_scrapes(manifests: Any, selects: Any, app_paths: Any) -> None:
    for monitor in manifests.of("ServiceMonitor"):
        chosen = {
            service["metadata"]["name"]: {port["name"] for port in service["spec"]["ports"]}
            for service in manifests.of("Service")
            if selects(monitor["spec"]["selector"], service["metadata"]["labels"])
        }
        assert chosen == {"api": {"http"}, "worker": {"http"}}
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] == "http"
        assert endpoint["path"] in app_paths("api") & app_paths("worker")
        (relabeling,) = endpoint["relabelings"]
        assert relabeling["targetLabel"] == "__scheme__"
        (source,) = relabeling["sourceLabels"]
        for name in chosen:
            metadata = manifests.named("Service", name)["metadata"]
            said = {
                f"__meta_kubernetes_service_annotation_{re.sub('[^a-z]', '_', key)}": value
                for key, value in metadata.get("annotations", {}).items()
            }
            tls = "RAMPART_TLS_KEY" in manifests.variables(manifests.pod(name))
            assert said.get(source, "http") == ("https" if tls else "http")
            assert re.fullmatch(relabeling["regex"], said.get(source, "http"))
