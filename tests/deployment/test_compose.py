"""docker-compose.yml uses only names and settings that the code knows."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.server import DRAIN
from rampart_fl.services.console.join_tokens import TOKENS_FILE, shares
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.datasets.files import VARIABLE as DATA
from rampart_fl.shared.runtime.process import SECRETS
from rampart_fl.shared.validation import validate
from tests.deployment.conftest import image_of

VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::-([^}]*))?\}")


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """A value as compose reads it: replaces ${NAME:-default}, and $$ by a dollar sign."""
    if isinstance(value, dict):
        return {key: interpolate(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolate(one, variables) for one in value]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1]) or match[2] or ""

    return VARIABLE.sub(put, value)


@pytest.fixture(scope="module", params=["defaults", "example", "attackers", "monitoring"])
def compose(
    request: pytest.FixtureRequest,
    root: Path,
    load: Callable[[str], list[Any]],
    read_env: Callable[..., dict[str, str]],
) -> dict[str, Any]:
    """The file with each of four sets of variables, and only the services that these start."""
    example = (root / ".env.example").read_text()
    variables: dict[str, str] = {}
    if request.param == "monitoring":
        variables = {"COMPOSE_PROFILES": "monitoring"}
    elif request.param != "defaults":
        variables = read_env(example, commented=request.param == "attackers")
    (raw,) = load((root / "docker-compose.yml").read_text())
    file: dict[str, Any] = interpolate(raw, variables)
    active = {"console", *variables.get("COMPOSE_PROFILES", "").split(",")}
    file["services"] = {
        name: service
        for name, service in file["services"].items()
        if not service.get("profiles") or active & set(service["profiles"])
    }
    file["experiment"] = file["services"]["worker"]["environment"]["RAMPART_EXPERIMENT"]
    return file


def ours(compose: dict[str, Any]) -> dict[str, Any]:
    """The services that run our images as their settings say."""
    named = {n: s for n, s in compose["services"].items() if s["image"].startswith("rampart:")}
    return {name: service for name, service in named.items() if name != "console"}


def environment(service: dict[str, Any]) -> dict[str, str]:
    """A service's variables as text."""
    return {name: str(value) for name, value in service.get("environment", {}).items()}


def test_every_setting_is_known_and_valid(compose: dict[str, Any], settings_of: Any) -> None:
    for service in ours(compose).values():
        settings_of(service["command"], environment(service), set(service.get("secrets", [])))


def test_urls_and_published_ports_lead_to_listening_processes(
    compose: dict[str, Any], settings_of: Any
) -> None:
    urls = {"RAMPART_AGGREGATOR", "RAMPART_COHORT", "RAMPART_REDIS_URL"}
    listens = {"redis": 6379}
    for name, service in ours(compose).items():
        values = settings_of(
            service["command"],
            environment(service),
            set(service.get("secrets", [])),
        )
        if hasattr(values, "port"):
            listens[name] = values.port
            assert values.host == "0.0.0.0"
        for port in service.get("ports", []):
            address, _, target = port.rpartition(":")
            assert address.startswith("127.0.0.1:")
            assert int(target) == values.port
    for service in compose["services"].values():
        for name, value in environment(service).items():
            if name in urls:
                host, port = re.fullmatch(r"\w+://([\w-]+):(\d+)(/\d+)?", value).groups()[:2]
                assert listens[host] == int(port)
                shared = set(service["networks"]) & set(compose["services"][host]["networks"])
                assert shared, f"no network leads to {host}"


def test_clients_cannot_reach_redis(compose: dict[str, Any]) -> None:
    inside = set(compose["services"]["redis"]["networks"])
    near = {n for n, s in compose["services"].items() if inside & set(s["networks"])}
    assert near == {"redis", "api", "worker"}


def test_secrets_networks_and_volumes_are_declared(compose: dict[str, Any], root: Path) -> None:
    for service in compose["services"].values():
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
        assert set(service["networks"]) <= compose["networks"].keys()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (root / source).is_file()
            else:
                assert source in compose["volumes"]
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
    assert "/secrets/" in (root / ".gitignore").read_text().splitlines()


def test_written_folders_are_mounted_writable(compose: dict[str, Any], settings_of: Any) -> None:
    for service in ours(compose).values():
        values = settings_of(
            service["command"],
            environment(service),
            set(service.get("secrets", [])),
        )
        mounts = [volume.split(":") for volume in service.get("volumes", [])]
        writable = [Path(m[1]) for m in mounts if m[2:] != ["ro"]]
        readable = [Path(m[1]) for m in mounts]
        written = [getattr(values, name, None) for name in ("blobs", "state")]
        if hasattr(values, "tokens_folder"):
            written += [values.tokens_folder / name for name in shares(values.groups)]
        for folder in (Path(f) for f in written if f is not None):
            assert any(folder.is_relative_to(mount) for mount in writable), folder
        if getattr(values, "join_tokens", None) is not None:
            assert any(values.join_tokens.is_relative_to(mount) for mount in readable)


def test_images_contain_the_folders_on_which_writable_volumes_are_mounted(
    compose: dict[str, Any], root: Path
) -> None:
    """An empty volume takes over the owner of the image's folder; without it, root owns both."""
    (made,) = re.findall(r"for folder in ([^;]*); do", (root / "services/Dockerfile").read_text())
    known = {f"/var/lib/rampart/{folder}" for folder in made.split()}
    for service in ours(compose).values():
        mounts = [volume.split(":") for volume in service.get("volumes", [])]
        assert {mount[1] for mount in mounts if mount[2:] != ["ro"]} <= known


def test_data_sets_are_mounted_in_every_service_that_reads_them(compose: dict[str, Any]) -> None:
    for name, service in ours(compose).items():
        folders = [v.split(":")[1:] for v in service.get("volumes", []) if v.startswith("data:")]
        result = environment(service).get(DATA)
        assert folders == ([[result, "ro"]] if result else [])
        assert bool(result) == (name in {"worker", "agents", "attackers"})


def test_dependency_conditions_are_supported_by_their_services(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for name, needed in service.get("depends_on", {}).items():
            other = compose["services"][name]
            if needed["condition"] == "service_healthy":
                assert other["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
            else:
                assert needed["condition"] == "service_completed_successfully"
                assert other["restart"] == "on-failure"


def test_health_checks_request_paths_that_are_served(
    compose: dict[str, Any], app_paths: Any
) -> None:
    for name in ("api", "worker"):
        command = compose["services"][name]["healthcheck"]["test"]
        assert command[:4] == ["CMD", "python", "-m", "rampart_fl.services.aggregator.probe"]
        assert command[4] in app_paths(name)
    cohort = compose["services"].get("cohort")
    if cohort is not None:
        assert cohort["environment"]["RAMPART_COHORT_PORT"] in cohort["healthcheck"]["test"][-1]


def test_every_service_runs_an_image_that_fits_its_command(compose: dict[str, Any]) -> None:
    for service in ours(compose).values():
        needed = image_of(service["command"], environment(service))
        assert service["image"].endswith(f"-{needed}")
    console = compose["services"]["console"]
    assert (console["entrypoint"], console["image"][-5:]) == (["rampart"], "-slim")


def test_join_tokens_clients_and_experiment_agree(
    compose: dict[str, Any], settings_of: Any
) -> None:
    services = compose["services"]
    job = services["join-tokens"]
    minted = settings_of(job["command"], environment(job), set(job["secrets"]))
    experiment = validate(Experiment.load(compose["experiment"]))
    hosted: dict[str, list[int]] = {"agents": [], "attackers": []}
    for group in minted.groups:
        if group in services:
            service = services[group]
            values = settings_of(
                service["command"], environment(service), set(service.get("secrets", []))
            )
            hosted[group] = values.hosted
            names = [experiment.client_names[slot] for slot in values.hosted]
            assert shares(minted.groups)[f"{group}-0"] == names
            folder = minted.tokens_folder / f"{group}-0"
            assert values.join_tokens == folder / TOKENS_FILE
            (mount,) = [volume for volume in service["volumes"] if "join-tokens" in volume]
            assert mount == f"{group}-join-tokens:{folder}:ro", "it cannot read others' tokens"
            assert mount.removesuffix(":ro") in job["volumes"]
    assert len(shares(minted.groups)) == len(hosted["agents"][:1] + hosted["attackers"][:1])
    hostile = [slot for slot, role in enumerate(experiment.roles) if role is not None]
    assert hosted["attackers"] == hostile
    assert sorted(hosted["agents"] + hostile) == list(range(experiment.data.clients))
    if hostile:
        lies = settings_of(
            services["attackers"]["command"],
            environment(services["attackers"]),
            set(services["attackers"]["secrets"]),
        )
        assert lies.own_positions == list(range(len(hostile)))
        assert lies.members == len(hostile)
        assert int(environment(services["cohort"])["RAMPART_COHORT_MEMBERS"]) == len(hostile)
        assert [group.attack for group in experiment.attackers] == [{"name": lies.attack}]


def test_containers_run_with_least_privilege(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["tmpfs"] == ["/tmp"]
        assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN, name
        assert all(
            SECRETS in environment(service) or name == "redis" for _ in service.get("secrets", [])
        )


def test_no_secret_is_an_environment_variable(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for name in environment(service):
            assert not re.search(r"TOKEN$|PASSWORD|_KEY$", name)


def test_env_example_lists_every_variable_with_its_default(
    root: Path, read_env: Callable[..., dict[str, str]]
) -> None:
    text = (root / "docker-compose.yml").read_text()
    read = {match[1] for match in VARIABLE.finditer(text) if match[1]}
    example = read_env((root / ".env.example").read_text(), commented=True)
    assert example.keys() - {"COMPOSE_PROFILES"} == read
    defaults = {match[1]: match[2] for match in VARIABLE.finditer(text) if match[1]}
    variables = read_env((root / ".env.example").read_text())
    unlike = {n for n, v in variables.items() if n != "ATTACKERS" and v != defaults[n]}
    assert not unlike
    assert variables["ATTACKERS"] == ""


def test_prometheus_scrapes_the_metrics_ports(
    compose: dict[str, Any], root: Path, load: Callable[[str], list[Any]]
) -> None:
    (settings,) = load((root / "monitoring/prometheus.yaml").read_text())
    (job,) = settings["scrape_configs"]
    (target,) = job["dns_sd_configs"]
    assert target["names"] == ["api", "worker"]
    for name in target["names"]:
        service = compose["services"][name]
        assert environment(service)["RAMPART_METRICS_PORT"] == str(target["port"])
        assert "metrics" in service["networks"]
    if "grafana" in compose["services"]:
        (source,) = load((root / "monitoring/grafana/datasources.yaml").read_text())[0][
            "datasources"
        ]
        assert source["url"] == "http://prometheus:9090"
        networks = (set(compose["services"][n]["networks"]) for n in ("grafana", "prometheus"))
        assert set.intersection(*networks)
