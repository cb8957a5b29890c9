"""Manifests as objects, read from files by a small kustomize or rendered by kubectl."""

import copy
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Object = dict[str, Any]
MINE = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: rampart
resources: [../{overlay}]
components: [{components}]
"""
COMPONENTS = ("tls", "object-store", "monitoring", "data")
OUTSIDE: dict[str, set[str]] = {
    "join-tokens": set(),
    "api-tls": {"tls.crt", "tls.key", "ca.crt"},
    "object-store": set(),
}
"""Secrets that no file makes (the job, a certificate's issuer, the operator do), known keys."""


@dataclass(frozen=True)
class Pod:
    """A pod's template and what makes pods of it."""

    owner: Object
    labels: Mapping[str, str]
    spec: Object

    @property
    def name(self) -> str:
        """Its owner's name."""
        return str(self.owner["metadata"]["name"])

    @property
    def container(self) -> Object:
        """Its only container."""
        (only,) = self.spec["containers"]
        return dict(only)

    @property
    def component(self) -> str:
        """The component of the federation that the object belongs to."""
        return self.labels["app.kubernetes.io/component"]


class Manifests:
    """All objects of one kustomization."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = objects

    def of(self, kind: str) -> list[Object]:
        """Objects of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def named(self, kind: str, name: str) -> Object:
        """One object; kustomize's hash at the end of a name does not count."""
        (found,) = [o for o in self.of(kind) if plain(o["metadata"]["name"], name)]
        return found

    @property
    def pods(self) -> list[Pod]:
        """Every pod's template."""
        return [
            Pod(one, one["spec"]["template"]["metadata"]["labels"], one["spec"]["template"]["spec"])
            for kind in ("Deployment", "StatefulSet", "Job")
            for one in self.of(kind)
        ]

    def pod(self, component: str) -> Pod:
        """The pod's template of one component."""
        (found,) = [pod for pod in self.pods if pod.component == component]
        return found

    def data(self, kind: str, name: str) -> dict[str, str]:
        """Keys and values of a ConfigMap or Secret."""
        return dict(self.named(kind, name).get("data", {}))

    def variables(self, pod: Pod) -> dict[str, str]:
        """A container's variables; those that Kubernetes fills in have example values."""
        found: dict[str, str] = {}
        for source in pod.container.get("envFrom", []):
            if "configMapRef" in source:
                found |= self.data("ConfigMap", source["configMapRef"]["name"])
            else:
                assert source["secretRef"]["name"] in OUTSIDE
        examples = {
            "metadata.name": f"{pod.name}-1",
            "metadata.labels['apps.kubernetes.io/pod-index']": "1",
        }
        for variable in pod.container.get("env", []):
            given = variable.get("value")
            if given is None and "configMapKeyRef" in variable["valueFrom"]:
                source = variable["valueFrom"]["configMapKeyRef"]
                given = self.data("ConfigMap", source["name"])[source["key"]]
            elif given is None:
                given = examples[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            assert isinstance(given, str), variable
            found[variable["name"]] = given
        return found

    def secret_keys(self, name: str) -> set[str]:
        """The keys of a Secret, including Secrets that are made elsewhere."""
        return OUTSIDE[name] if name in OUTSIDE else set(self.data("Secret", name))

    def secret_files(self, pod: Pod) -> set[str]:
        """Files below the folder that RAMPART_SECRETS names."""
        folder = self.variables(pod).get("RAMPART_SECRETS")
        names = [m["name"] for m in pod.container["volumeMounts"] if m["mountPath"] == folder]
        if folder is None:
            return set()
        (volume,) = [v for v in pod.spec["volumes"] if [v["name"]] == names]
        secret = volume["secret"]
        items = {item["path"] for item in secret.get("items", [])}
        return items or self.secret_keys(secret["secretName"])


def plain(name: str, wanted: str) -> bool:
    """Whether a name is the wanted one, with or without kustomize's hash."""
    return name == wanted or (name.startswith(f"{wanted}-") and len(name) == len(wanted) + 11)


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels are selected."""
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    for wanted in selector.get("matchExpressions", []):
        assert wanted["operator"] == "In"
        exact &= labels.get(wanted["key"]) in wanted["values"]
    return bool(exact)


def assemble(folder: Path, load: Callable[[str], list[Any]], read_env: Any) -> list[Object]:
    """The objects of a kustomization without patches: resources, generators, replicas."""
    (file,) = load((folder / "kustomization.yaml").read_text())
    assert "patches" not in file
    assert "components" not in file
    objects: list[Object] = []
    for resource in file.get("resources", []):
        path = folder / resource
        if path.is_dir():
            objects += assemble(path, load, read_env)
        else:
            objects += copy.deepcopy(load(path.read_text()))
    for kind in ("ConfigMap", "Secret"):
        for entry in file.get(f"{kind[0].lower()}{kind[1:]}Generator", []):
            data = {Path(name).name: (folder / name).read_text() for name in entry.get("files", [])}
            for name in entry.get("envs", []):
                data |= read_env((folder / name).read_text())
            data |= dict(line.split("=", 1) for line in entry.get("literals", []))
            known = [
                o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, entry["name"])
            ]
            assert bool(known) == (entry.get("behavior") in {"merge", "replace"})
            if known:
                kept = known[0]["data"] if entry["behavior"] == "merge" else {}
                known[0]["data"] = {**kept, **data}
            else:
                objects.append({"kind": kind, "metadata": {"name": entry["name"]}, "data": data})
    for change in file.get("replicas", []):
        for one in objects:
            scaled = one["kind"] in {"Deployment", "StatefulSet"}
            if scaled and one["metadata"]["name"] == change["name"]:
                one["spec"]["replicas"] = change["count"]
    return objects


@pytest.fixture(scope="session")
def kubectl() -> str:
    """Where kubectl is."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl on the path")
    return found


@pytest.fixture(scope="session")
def render(
    root: Path, tmp_path_factory: pytest.TempPathFactory, load: Callable[[str], list[Any]]
) -> Callable[[str, str, tuple[str, ...]], list[Object]]:
    """Builds an overlay with components by kubectl, from a copy of the files."""

    def build(kubectl: str, overlay: str, components: tuple[str, ...]) -> list[Object]:
        folder = tmp_path_factory.mktemp("kustomize") / "k8s"
        shutil.copytree(root / "k8s", folder, ignore=shutil.ignore_patterns("mine"))
        target = folder / overlay
        if components:
            target = folder / "overlays/mine"
            target.mkdir(exist_ok=True)
            named = ", ".join(f"../../components/{name}" for name in components)
            where = "../base" if overlay == "base" else Path(overlay).name
            text = MINE.format(overlay=where, components=named)
            (target / "kustomization.yaml").write_text(text)
        done = subprocess.run(
            [kubectl, "kustomize", str(target)], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return load(done.stdout)

    return build


BUILDS: list[tuple[str, str, tuple[str, ...]]] = [
    ("files", "base", ()),
    ("files", "overlays/redteam", ()),
    ("kubectl", "base", ()),
    ("kubectl", "overlays/dev", ()),
    ("kubectl", "overlays/gpu", ()),
    ("kubectl", "overlays/redteam", ()),
    ("kubectl", "base", COMPONENTS),
    ("kubectl", "overlays/redteam", ("tls", "data")),
]


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(
            build,
            id="-".join([build[0], build[1], *build[2]]),
            marks=[pytest.mark.processes] if build[0] == "kubectl" else [],
        )
        for build in BUILDS
    ],
)
def manifests(
    request: pytest.FixtureRequest,
    root: Path,
    load: Callable[[str], list[Any]],
    read_env: Any,
    render: Callable[[str, str, tuple[str, ...]], list[Object]],
) -> Iterator[Manifests]:
    """Every kustomization, one after the other."""
    how, overlay, components = request.param
    if how == "files":
        yield Manifests(assemble(root / "k8s" / overlay, load, read_env))
    else:
        kubectl = request.getfixturevalue("kubectl")
        yield Manifests(render(kubectl, overlay, components))


@pytest.fixture(scope="session")
def selects() -> Callable[[Mapping[str, Any], Mapping[str, str]], bool]:
    """Whether a selector selects labels."""
    return matches
