"""The manifests equal the chart, presets combine, and releases share nothing. Needs helm."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from rampart_fl.services.aggregator.settings import Settings
from tests.deployment.kubernetes.conftest import FILES, Manifests, matches
from tests.deployment.kubernetes.test_isolation import outside, restricted
from tests.deployment.kubernetes.test_schemas import RELEASES

pytestmark = pytest.mark.processes
Render = Callable[..., list[Any]]
ROUTE = "httpRoute.enabled=true,httpRoute.host=federation.example,httpRoute.parents[0].name=public"
TRUST = "httpRoute.backendTls"


@pytest.fixture
def notes(helm: str, root: Path, tmp_path: Path, load: Callable[[str], list[Any]]) -> Any:
    """The text that helm shows after an installation with values."""
    chart = tmp_path / "chart"
    shutil.copytree(root / "k8s/chart", chart)
    # `helm template` leaves this text out, and `helm install` needs a cluster.
    text = (chart / "templates/NOTES.txt").read_text()
    wrapped = (
        f'{{{{ define "notes" }}}}{text}{{{{ end }}}}\nnotes: {{{{ include "notes" . | quote }}}}\n'
    )
    (chart / "templates/notes.yaml").write_text(wrapped)
    command = [helm, "template", "fed", str(chart), "-n", "ours", "-s", "templates/notes.yaml"]

    def shown(values: str) -> str:
        done = subprocess.run(
            [*command, "--set", values], check=True, capture_output=True, text=True
        )
        (rendered,) = load(done.stdout)
        return str(rendered["notes"])

    return shown


@pytest.fixture
def render(helm: str, root: Path, load: Callable[[str], list[Any]]) -> Render:
    """The objects that the chart renders with presets and values."""

    def objects(*presets: str, release: str = "rampart", values: str = "") -> list[Any]:
        chosen = [word for name in presets for word in ("-f", f"k8s/values/{name}.yaml")]
        options = ["--set", values] if values else []
        command = [helm, "template", release, "k8s/chart", "-n", "rampart", *chosen, *options]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr)
        return load(done.stdout)

    return objects


def test_committed_manifests_equal_the_rendered_chart(
    helm: str, root: Path, tmp_path: Path
) -> None:
    script = ["bash", str(root / "k8s/render.sh"), str(tmp_path)]
    subprocess.run(script, check=True, env={"PATH": f"{Path(helm).parent}:/usr/bin:/bin"})
    for name in (*FILES, "client"):
        stands = (root / f"k8s/manifests/{name}.yaml").read_text()
        assert (tmp_path / f"{name}.yaml").read_text() == stands, "run `make manifests`"


@pytest.mark.parametrize(
    "presets", [*itertools.permutations(["dev", "redteam"]), ("cloud", "redteam", "gpu", "dev")]
)
def test_presets_combine_without_a_repeated_object(
    render: Render, presets: tuple[str, ...]
) -> None:
    objects = render(*presets)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))
    assert ("StatefulSet", "rampart-attackers") in names


def test_two_releases_share_no_object_or_label_in_a_namespace(render: Render) -> None:
    one, two = ({"first": r, "objects": render("dev", "redteam", release=r)} for r in "ab")
    names = [{(o["kind"], o["metadata"]["name"]) for o in each["objects"]} for each in (one, two)]
    assert not names[0] & names[1]
    for each in (one, two):
        for made in each["objects"]:
            selector = made["spec"].get("selector") if "spec" in made else None
            if selector is not None:
                labels = selector.get("matchLabels", selector)
                assert labels["app.kubernetes.io/instance"] == each["first"]
            if made["kind"] == "NetworkPolicy":
                chosen = made["spec"]["podSelector"]["matchLabels"]
                assert chosen["app.kubernetes.io/instance"] == each["first"]


def job(objects: list[Any]) -> Any:
    """The job that creates join tokens."""
    (result,) = [one for one in objects if one["kind"] == "Job"]
    return result


@pytest.mark.parametrize(
    "values", ["image.tag=0.2.0", "agents.slots=0-1 2-3", "existingSecret=mine", "tls.enabled=true"]
)
def test_changed_job_gets_a_new_name(render: Render, values: str) -> None:
    # Kubernetes refuses to change a Job, so an upgrade must not try.
    before, after = job(render()), job(render(values=values))
    assert before["spec"] != after["spec"]
    assert before["metadata"]["name"] != after["metadata"]["name"]


def test_unchanged_job_keeps_its_name(render: Render) -> None:
    assert job(render(values="api.replicas=5")) == job(render())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("api.replica=3", "'replica' not allowed|replica is not allowed"),
        ("worker.device=tpu", "worker[/.]device"),
        ("worker.device=cuda,worker.processes=2", "worker.gpu.count is 1, but each of the"),
        ("redis.url=http://x", "redis[/.]url"),
        ("redis.maxmemory=much", "redis[/.]maxmemory"),
        ("federation.settings.threads=4", "threads"),
        ("agents.slots=0  1", "agents[/.]slots"),
        ("agents.slots=", "agents.enabled needs agents.slots"),
        ("blobs.volume.accessMode=ReadWriteOncePod", "accessMode"),
        ("ingress.enabled=true", "ingress.host is the name"),
        ("backup.enabled=true,redis.url=redis://x", "backup.enabled copies the chart's own Redis"),
        ("httpRoute.enabled=true,httpRoute.host=x", "httpRoute.parents are the Gateways"),
        (f"{ROUTE},tls.enabled=true", "needs exactly one of httpRoute.backendTls.caConfigMap"),
        (
            f"{ROUTE},tls.enabled=true,{TRUST}.caConfigMap=ca,{TRUST}.systemCas=true",
            "needs exactly one of httpRoute.backendTls.caConfigMap",
        ),
    ],
)
def test_unusable_values_are_refused(render: Render, values: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(values=values)


def test_release_name_that_makes_too_long_names_is_refused(render: Render) -> None:
    longest = "r" * 42
    for one in render("redteam", release=longest, values="federation.name=f"):
        name = one["metadata"]["name"]
        # The pods of a StatefulSet get a label with its name and a hash of up to 10 characters.
        limits = {"StatefulSet": 52, "CronJob": 52, "PriorityClass": 253}
        assert len(name) <= limits.get(one["kind"], 63), name
    with pytest.raises(ValueError, match=r"has 43 characters.*leave room for 42"):
        render("redteam", release=f"{longest}r")


def test_longest_prefix_of_keys_in_redis_is_one_that_the_services_accept(render: Render) -> None:
    with pytest.raises(ValueError, match=r"has 41 characters.*set federation.name"):
        render(release="r" * 41)
    for one in (
        Manifests(render(release="r" * 40)),
        Manifests(render(release="r" * 42, values="federation.name=f")),
        Manifests(render(values="federation.name=no")),
    ):
        name = one.variables(one.pod("api"))["RAMPART_NAMESPACE"]
        assert Settings(namespace=name, operator_token="o" * 16).namespace == name


def test_numbers_in_a_file_with_values_keep_all_their_digits(
    render: Render, helm: str, root: Path, tmp_path: Path, load: Callable[[str], list[Any]]
) -> None:
    numbers = {"disk_quota": 214_748_364_800, "records_kept": 1_000_000, "offline_after": 90.5}
    (tmp_path / "values.yaml").write_text(
        json.dumps({"federation": {"settings": numbers}, "priorityClass": {"value": 2_000_000}})
    )
    command = [helm, "template", "fed", "k8s/chart", "-f", str(tmp_path / "values.yaml")]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    manifests = Manifests(load(done.stdout))
    shown = manifests.variables(manifests.pod("worker"))
    for setting, number in numbers.items():
        assert shown[f"RAMPART_{setting.upper()}"] == str(number)
    (priority,) = manifests.of("PriorityClass")
    assert priority["value"] == 2_000_000
    (tmp_path / "values.yaml").write_text(json.dumps({"settings": {"patience": 3_000_000}}))
    command = [helm, "template", "site", "k8s/client-chart", "--set", "aggregator=http://a"]
    command += ["-f", str(tmp_path / "values.yaml")]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    client = Manifests(load(done.stdout))
    assert client.variables(client.pods[0])["RAMPART_PATIENCE"] == "3000000"


def test_memory_limit_of_redis_is_a_value(render: Render) -> None:
    (before,) = Manifests(render()).data("rampart-redis").values()
    (after,) = Manifests(render(values="redis.maxmemory=3gb")).data("rampart-redis").values()
    assert "maxmemory 768mb\n" in before
    assert after == before.replace("maxmemory 768mb\n", "maxmemory 3gb\n")


PROXY = "ingress.enabled=true,ingress.host=federation.example"
OWN = "nginx\\.ingress\\.kubernetes\\.io"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("tls.enabled=true", {"backend-protocol": "HTTPS"}),
        ("tls.enabled=false", {}),
        (
            f"tls.enabled=true,ingress.annotations.{OWN}/backend-protocol=GRPCS",
            {"backend-protocol": "GRPCS"},
        ),
    ],
)
def test_ingress_renders_without_the_default_annotations(
    render: Render, root: Path, load: Any, values: str, expected: dict[str, str]
) -> None:
    (defaults,) = load((root / "k8s/chart/values.yaml").read_text())
    names = [name.replace(".", "\\.") for name in defaults["ingress"]["annotations"]]
    nulled = [f"ingress.annotations.{name}=null" for name in names]
    (made,) = [
        one for one in render(values=",".join([PROXY, *nulled, values])) if one["kind"] == "Ingress"
    ]
    found = made["metadata"].get("annotations", {})
    assert found == {f"nginx.ingress.kubernetes.io/{k}": v for k, v in expected.items()}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("rediss://r:6380/0", "rediss://r:6380/0?ssl_ca_certs="),
        ("rediss://r:6380/0?timeout=5", "rediss://r:6380/0?timeout=5&ssl_ca_certs="),
    ],
)
def test_certificate_authority_extends_the_query_of_the_redis_url(
    render: Render, url: str, expected: str
) -> None:
    objects = Manifests(render(values=f"redis.url={url},redis.caSecret=ca"))
    found = objects.data("rampart-aggregator")["RAMPART_REDIS_URL"]
    assert found == f"{expected}/run/secrets/redis-ca/ca.crt"


@pytest.mark.parametrize("presets", [(), ("dev", "redteam"), ("cloud",)])
def test_pod_of_helm_test_is_valid_restricted_and_reaches_only_the_api(
    render: Render, presets: tuple[str, ...]
) -> None:
    objects = render(*presets)
    (pod,) = [one for one in objects if one["kind"] == "Pod"]
    for release in RELEASES:
        kubernetes_validate.validate(pod, release, strict=True)
    restricted(pod["spec"])
    assert pod["spec"]["automountServiceAccountToken"] is False
    mounted = [m["name"] for one in pod["spec"]["containers"] for m in one["volumeMounts"]]
    assert set(mounted) == {volume["name"] for volume in pod["spec"]["volumes"]}
    (policy,) = [
        one["spec"]
        for one in objects
        if one["kind"] == "NetworkPolicy"
        and matches(one["spec"]["podSelector"], pod["metadata"]["labels"])
    ]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == []
    to_api, to_dns = policy["egress"]
    (peer,) = to_api["to"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "api"
    assert [port["port"] for port in to_api["ports"]] == [8440]
    assert {port["port"] for port in to_dns["ports"]} == {53, 5353}


@pytest.mark.parametrize(
    ("value", "authority"),
    [
        (
            f"{TRUST}.caConfigMap=ca",
            {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]},
        ),
        (f"{TRUST}.systemCas=true", {"wellKnownCACertificates": "System"}),
    ],
)
def test_gateway_uses_https_only_for_an_api_with_a_certificate(
    render: Render, value: str, authority: dict[str, Any]
) -> None:
    encrypted = render(values=f"{ROUTE},tls.enabled=true,tls.issuer.name=internal,{value}")
    made = {one["kind"]: one for one in encrypted}
    (rule,) = made["HTTPRoute"]["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    spec = made["BackendTLSPolicy"]["spec"]
    assert spec["targetRefs"] == [{"group": "", "kind": "Service", "name": backend["name"]}]
    assert spec["validation"].pop("hostname") in made["Certificate"]["spec"]["dnsNames"]
    assert spec["validation"] == authority
    # A policy would make the Gateway speak HTTPS to an api without a certificate.
    plain = {one["kind"] for one in render(values=f"{ROUTE},{value}")}
    assert "HTTPRoute" in plain
    assert "BackendTLSPolicy" not in plain


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("redis://redis.example/0", {6379}),
        ("rediss://redis.example:6380/0", {6380}),
        ("redis://[fd00::1]:7000", {7000}),
        ("redis+sentinel://one:26379,two:26379/primary/0", {26379}),
        ("rediss+sentinel://one:26379,two:26380,three:5000/primary/0", {26379, 26380, 5000}),
    ],
)
def test_api_and_worker_reach_the_ports_of_redis(render: Render, url: str, ports: set[int]) -> None:
    escaped = url.replace(",", "\\,")
    policies = [
        one for one in render(values=f"redis.url={escaped}") if one["kind"] == "NetworkPolicy"
    ]
    reached = {one["metadata"]["name"]: outside(one["spec"]) for one in policies}
    for name in ("rampart-api", "rampart-worker"):
        assert reached[name] == {443, 6379, 6380, 26379} | ports


def test_install_notes_name_the_paths_of_the_certificate_authority(
    notes: Any, render: Render
) -> None:
    text = notes("tls.enabled=true,tls.secret=certificate").replace("\\\n", "")
    inside, outside = re.findall(r"rampart watch --url https://localhost:8440 --ca (\S+)", text)
    (api,) = [
        one["spec"]["template"]["spec"]["containers"][0]
        for one in render(values="tls.enabled=true")
        if one["kind"] == "Deployment"
    ]
    mounts = {mount["name"]: mount["mountPath"] for mount in api["volumeMounts"]}
    assert inside == f"{mounts['tls']}/ca.crt"
    (written,) = re.findall(
        r"kubectl -n ours get secret certificate +-o jsonpath='\{.data.ca\\.crt\}' "
        r"\| base64 -d > (\S+)\n",
        text,
    )
    assert outside == written
    plain = notes("tls.enabled=false")
    assert len(re.findall(r"rampart watch --url http://localhost:8440\n", plain)) == 2
    assert "ca.crt" not in plain


@pytest.mark.parametrize("chart", ["chart", "client-chart"])
def test_every_chart_value_has_a_schema(
    root: Path, load: Callable[[str], list[Any]], chart: str
) -> None:
    (values,) = load((root / f"k8s/{chart}/values.yaml").read_text())
    (schema,) = load((root / f"k8s/{chart}/values.schema.json").read_text())

    def compare(value: Any, schema: Any, path: str) -> None:
        if isinstance(value, dict) and "properties" in schema:
            assert schema["additionalProperties"] is False, path
            assert value.keys() == schema["properties"].keys() - {"global"}, path
            for name, inner in value.items():
                compare(inner, schema["properties"][name], f"{path}.{name}")

    compare(values, schema, "")
    versions = load((root / f"k8s/{chart}/Chart.yaml").read_text())[0]
    assert f'version = "{versions["appVersion"]}"' in (root / "pyproject.toml").read_text()


def test_worker_of_several_processes_is_started_by_torchrun(render: Render) -> None:
    commands = {
        pod["metadata"]["name"]: pod["spec"]["template"]["spec"]["containers"][0]["command"]
        for pod in render(values="worker.processes=3")
        if pod["kind"] in ("Deployment", "StatefulSet")
        and pod["metadata"]["name"] != "rampart-redis"
    }
    service = ["-m", "rampart_fl.services.aggregator"]
    assert commands["rampart-api"] == ["python", *service]
    torchrun = ["python", "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--local-addr", "127.0.0.1", "--nproc-per-node", "3"]
    assert commands["rampart-worker"] == [*torchrun, *service]
