"""The rendered manifests as objects."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Object = dict[str, Any]
FILES = ("standard", "dev", "dev-redteam", "gpu", "cloud")
"""The manifests that the repository contains, without their ending."""
OWNER = {"rampart_operator_token", "rampart_redis_password", "rampart_cohort_token"}
"""The keys of the Secret that an operator creates."""
TLS = {"tls.crt", "tls.key", "ca.crt"}
"""The keys of a certificate's Secret."""
NO_SERVICE = {"redis", "backup"}
"""Components whose containers start none of our services."""
INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"


@dataclass(frozen=True)
class Pod:
    """A pod's template, and the object that creates pods from it."""

    owner: Object
    labels: Mapping[str, str]
    spec: Object

    @property
    def name(self) -> str:
        """Its owner's name."""
        return str(self.owner["metadata"]["name"])

    @property
    def container(self) -> Object:
        """Its first container that is not an init container."""
        return dict(self.spec["containers"][0])

    @property
    def containers(self) -> list[Object]:
        """All of its containers."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def component(self) -> str:
        """The component of the federation that the object belongs to."""
        return self.labels["app.kubernetes.io/component"]


class Manifests:
    """All objects of one file."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = objects

    def of(self, kind: str) -> list[Object]:
        """Objects of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def named(self, kind: str, name: str) -> Object:
        """One object."""
        (result,) = [one for one in self.of(kind) if one["metadata"]["name"] == name]
        return result

    @property
    def pods(self) -> list[Pod]:
        """Every pod's template."""
        specs = [
            (one, one["spec"])
            for kind in ("Deployment", "StatefulSet", "Job")
            for one in self.of(kind)
        ]
        specs += [(one, one["spec"]["jobTemplate"]["spec"]) for one in self.of("CronJob")]
        templates = [(one, spec["template"]) for one, spec in specs]
        return [Pod(one, made["metadata"]["labels"], made["spec"]) for one, made in templates]

    def pod(self, component: str) -> Pod:
        """The pod's template of one component."""
        (result,) = [pod for pod in self.pods if pod.component == component]
        return result

    @property
    def components(self) -> set[str]:
        """The components that have pods."""
        return {pod.component for pod in self.pods}

    def data(self, name: str) -> dict[str, str]:
        """Keys and values of a ConfigMap."""
        return dict(self.named("ConfigMap", name).get("data", {}))

    def variables(self, pod: Pod) -> dict[str, str]:
        """A container's variables, with example values for those that Kubernetes sets."""
        table: dict[str, str] = {}
        for source in pod.container.get("envFrom", []):
            if "configMapRef" in source:
                table |= self.data(source["configMapRef"]["name"])
        last = {"metadata.name": f"{pod.name}-0", INDEX: "0"}
        for variable in pod.container.get("env", []):
            value = variable.get("value")
            if value is None:
                value = last[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            assert isinstance(value, str), variable
            table[variable["name"]] = value
        return table

    def secret_files(self, pod: Pod) -> set[str]:
        """Files below the folder that RAMPART_SECRETS names."""
        folder = self.variables(pod).get("RAMPART_SECRETS")
        names = [m["name"] for m in pod.container["volumeMounts"] if m["mountPath"] == folder]
        if folder is None:
            return set()
        (volume,) = [v for v in pod.spec["volumes"] if [v["name"]] == names]
        return {item["path"] for item in volume["secret"]["items"]}


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector selects labels."""
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    for wanted in selector.get("matchExpressions", []):
        assert wanted["operator"] == "In"
        exact &= labels.get(wanted["key"]) in wanted["values"]
    return bool(exact)


@pytest.fixture(scope="session", params=FILES)
def manifests(
    request: pytest.FixtureRequest, root: Path, load: Callable[[str], list[Any]]
) -> Manifests:
    """Every file of manifests, one after the other."""
    return Manifests(load((root / f"k8s/manifests/{request.param}.yaml").read_text()))


@pytest.fixture(scope="session")
def helm() -> str:
    """The path of helm."""
    path = shutil.which("helm")
    if path is None:
        pytest.skip("no helm on the path: nobody checks that chart and manifests agree")
    return path


@pytest.fixture(scope="session")
def selects() -> Callable[[Mapping[str, Any], Mapping[str, str]], bool]:
    """Whether a selector selects labels."""
    return matches
