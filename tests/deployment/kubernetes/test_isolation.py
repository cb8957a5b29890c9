"""Pods have few permissions, and reach only what they need."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.attacker.cohort import CohortSettings

DNS = 53


def restricted(spec: dict[str, Any]) -> None:
    """Asserts that a pod meets the restricted standard and has a read-only file system."""
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        assert name not in spec
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
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


def test_every_pod_meets_the_restricted_standard(manifests: Any) -> None:
    for pod in manifests.pods:
        restricted(pod.spec)
        user = 999 if pod.component == "redis" else 10001
        assert pod.spec["securityContext"]["runAsUser"] == user


def test_namespace_enforces_the_restricted_standard(
    root: Any, load: Callable[[str], list[Any]]
) -> None:
    (namespace,) = load((root / "k8s/namespace.yaml").read_text())
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_manifests_contain_no_secret_and_empty_tokens_are_refused(manifests: Any) -> None:
    assert manifests.of("Secret") == []
    with pytest.raises(ValidationError, match="RAMPART_OPERATOR_TOKEN"):
        Settings.model_validate({"operator_token": ""})
    with pytest.raises(ValidationError, match="token"):
        CohortSettings.model_validate({"token": "", "members": 1})


def test_only_the_join_token_job_has_cluster_permissions(manifests: Any) -> None:
    with_account = {p.component for p in manifests.pods if p.spec["automountServiceAccountToken"]}
    assert with_account == {"join-tokens"}
    (role,) = manifests.of("Role")
    secret = manifests.variables(manifests.pod("join-tokens"))["RAMPART_TOKENS_SECRET"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [secret],
            "verbs": ["get", "patch"],
        },
    ]
    (binding,) = manifests.of("RoleBinding")
    (account,) = manifests.of("ServiceAccount")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert manifests.pod("join-tokens").spec["serviceAccountName"] == account["metadata"]["name"]


def test_selectors_match_the_labels_of_their_pods(manifests: Any, selects: Any) -> None:
    for pod in manifests.pods:
        selector = pod.owner["spec"].get("selector")
        if selector is not None:
            assert [p.name for p in manifests.pods if selects(selector, p.labels)] == [pod.name]
        if pod.owner["kind"] == "StatefulSet":
            assert manifests.named("Service", pod.owner["spec"]["serviceName"])
    for budget in manifests.of("PodDisruptionBudget"):
        chosen = [p for p in manifests.pods if selects(budget["spec"]["selector"], p.labels)]
        assert len(chosen) == 1
        # A budget would block the replacement of a single pod. Without replicas, pods are scaled.
        assert chosen[0].owner["spec"].get("replicas", 2) > 1
        assert budget["spec"]["maxUnavailable"] == 1


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
            pods = [
                one["podSelector"] for one in rule.get(peers, []) if set(one) == {"podSelector"}
            ]
            known = peers not in rule or any(selects(one, peer.labels) for one in pods)
            return known and (not ports or port in ports)

        rules = [rule for policy in applying for rule in policy.get(way.lower(), [])]
        return not applying or any(passes(rule) for rule in rules)

    return decide


CONNECTIONS = {
    ("agents", "api", 8440),
    ("attackers", "api", 8440),
    ("join-tokens", "api", 8440),
    ("attackers", "cohort", 8450),
    ("api", "redis", 6379),
    ("worker", "redis", 6379),
    ("backup", "api", 8440),
    ("backup", "redis", 6379),
}
"""All connections between pods."""


def test_network_policies_allow_exactly_the_listed_connections(
    manifests: Any, allowed: Allowed
) -> None:
    table = {
        (source.component, target.component, port["containerPort"])
        for source in manifests.pods
        for target in manifests.pods
        for port in target.container.get("ports", [])
        if allowed("Egress", source, target, port["containerPort"])
        and allowed("Ingress", source, target, port["containerPort"])
    }
    there = manifests.components
    assert table == {one for one in CONNECTIONS if {one[0], one[1]} <= there}


def test_every_pod_has_one_policy_for_ingress_and_egress(manifests: Any, selects: Any) -> None:
    for pod in manifests.pods:
        (policy,) = [
            one["spec"]
            for one in manifests.of("NetworkPolicy")
            if selects(one["spec"]["podSelector"], pod.labels)
        ]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert all("ports" in rule for way in ("ingress", "egress") for rule in policy[way])


def outside(policy: dict[str, Any]) -> set[int]:
    """The ports at which pods of a policy reach addresses beyond the cluster."""
    return {
        port["port"]
        for rule in policy["egress"]
        for peer in rule["to"]
        if peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0"
        for port in rule["ports"]
    }


def test_only_listed_components_reach_addresses_outside_the_cluster(manifests: Any) -> None:
    tls = "RAMPART_TLS_KEY" in manifests.variables(manifests.pod("api"))
    state = {443, 6379, 6380, 26379} if tls else set()
    for policy in manifests.of("NetworkPolicy"):
        component = policy["metadata"]["labels"]["app.kubernetes.io/component"]
        expected = {"join-tokens": {443, 6443}, "api": state, "worker": state}
        assert outside(policy["spec"]) == expected.get(component, set())


def test_pods_that_need_dns_reach_only_cluster_resolvers(manifests: Any) -> None:
    for policy in manifests.of("NetworkPolicy"):
        component = policy["metadata"]["labels"]["app.kubernetes.io/component"]
        asked = [rule for rule in policy["spec"]["egress"] if {"port": DNS} in _bare(rule)]
        assert len(asked) == (component not in {"redis", "cohort", "restore"})
        for rule in asked:
            assert {port["protocol"] for port in rule["ports"]} == {"TCP", "UDP"}
            kinds = {kind for peer in rule["to"] for kind in peer}
            assert kinds == {"namespaceSelector", "podSelector", "ipBlock"}


def _bare(rule: dict[str, Any]) -> list[dict[str, int]]:
    return [{"port": port["port"]} for port in rule["ports"]]


def test_only_prometheus_reaches_the_metrics_ports(manifests: Any, selects: Any) -> None:
    monitors = manifests.of("ServiceMonitor")
    for policy in manifests.of("NetworkPolicy"):
        for rule in policy["spec"]["ingress"]:
            if {"port": "metrics"} in _bare(rule):
                (peer,) = rule["from"]
                assert peer == {
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}
                    }
                }
                assert monitors
    for monitor in monitors:
        chosen = {
            service["metadata"]["labels"]["app.kubernetes.io/component"]: {
                port["name"] for port in service["spec"]["ports"]
            }
            for service in manifests.of("Service")
            if selects(monitor["spec"]["selector"], service["metadata"]["labels"])
        }
        assert chosen == {"api": {"http", "metrics"}, "worker": {"http", "metrics"}}
        (endpoint,) = monitor["spec"]["endpoints"]
        assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")


def test_prometheus_rules_equal_the_alerts_file(
    manifests: Any, root: Path, load: Callable[[str], list[Any]]
) -> None:
    (file,) = load((root / "monitoring/alerts.yaml").read_text())
    for rules in manifests.of("PrometheusRule"):
        assert rules["spec"] == file


def test_cloud_manifests_contain_a_route_monitors_and_alerts(
    root: Path, load: Callable[[str], list[Any]]
) -> None:
    """Other tests of this file check these objects only where manifests contain them."""
    kinds = {one["kind"] for one in load((root / "k8s/manifests/cloud.yaml").read_text())}
    assert {"ServiceMonitor", "PrometheusRule", "NetworkPolicy"} <= kinds
    assert kinds & {"Ingress", "HTTPRoute"}


PUBLIC = [("/v1/", "Prefix"), ("/", "Exact"), ("/assets/", "Prefix")]
"""The API, and the operators' page."""


def test_only_the_api_and_the_page_are_public(manifests: Any) -> None:
    for ingress in manifests.of("Ingress"):
        (rule,) = ingress["spec"]["rules"]
        paths = rule["http"]["paths"]
        assert [(path["path"], path["pathType"]) for path in paths] == PUBLIC
        service = {"name": "rampart-api", "port": {"name": "http"}}
        assert all(path["backend"]["service"] == service for path in paths)
    for route in manifests.of("HTTPRoute"):
        (rule,) = route["spec"]["rules"]
        kinds = {"Prefix": "PathPrefix", "Exact": "Exact"}
        assert rule["matches"] == [
            {"path": {"type": kinds[kind], "value": path}} for path, kind in PUBLIC
        ]
        assert rule["backendRefs"] == [{"name": "rampart-api", "port": 8440}]
