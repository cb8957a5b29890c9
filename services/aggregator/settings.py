"""Settings of the aggregator: environment variables with the prefix RAMPART_, or flags."""

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ByteSize, Field, SecretStr, model_validator

from rampart_fl.shared.runtime import cpus
from rampart_fl.shared.runtime.process import ServiceSettings

TAP_ENABLED = (
    "RAMPART_TEST_TAP is set: this token gives access to every client's update. Use this "
    "federation for tests only, because it does not protect the clients' data"
)
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def processes() -> int:
    """Number of processes that torchrun started for the worker; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def share_of_processors() -> int:
    """The processors that the container may use, divided by the number of the worker's processes.

    `--help` shows the name of this function as the default of `--threads`.
    """
    return max(1, cpus.threads() // processes())


def half_of_offline_after(settings: dict[str, Any]) -> float:
    """Half of `offline_after` in seconds, but at most a minute; the default of `poll`.

    >>> half_of_offline_after({"offline_after": 30.0})
    15.0
    """
    return min(60.0, float(settings["offline_after"]) / 2)


def _plain(size: Any) -> Any:
    if isinstance(size, str) and not re.fullmatch(r"\s*\d+(\.\d+)?\s*[A-Za-z]*\s*", size):
        raise ValueError(f"{size!r} is not a size such as 2147483648 or 2GiB")
    return size


Size = Annotated[ByteSize, BeforeValidator(_plain)]
"""Number of bytes. `_plain` refuses sizes such as 2e9, which `ByteSize` alone would read as two
exabytes."""


class Settings(ServiceSettings):
    """The settings of a deployment; the variable RAMPART_<FIELD> sets the field of that name."""

    role: Literal["all", "api", "worker"] = "all"
    """Role of the process. `api` admits uploads; it needs no torch and can have many replicas.
    `worker` computes the results of rounds while it holds the lease. `all` combines the roles `api`
    and `worker` in one process."""
    experiment: str | None = None
    """Experiment file, or the name of a shipped experiment. The worker submits this experiment if
    the federation has never had a run."""
    host: str = "127.0.0.1"
    """Address on which the process listens. If other machines can reach this address, use TLS or a
    TLS proxy."""
    port: int = Field(default=8440, ge=0, le=65_535)
    """Port on which the process listens."""
    metrics_port: int | None = Field(default=None, ge=0, le=65_535)
    """Separate port for `/metrics`, without TLS; by default, the API's port serves `/metrics`."""
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", pattern=r"^(rediss?(\+sentinel)?|unix)://"
    )
    """URL of Redis, which holds the federation's state. With Sentinels:
    redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE, or rediss+sentinel:// with TLS."""
    redis_password: SecretStr | None = None
    """Password of Redis, if it has one."""
    sentinel_password: SecretStr | None = None
    """Password of the Sentinels, if they have one."""
    redis_replicas: int = Field(default=0, ge=0, le=10)
    """Number of Redis replicas that must confirm a write before the aggregator acknowledges it.
    With at least one replica, a failover of Redis loses no acknowledged write."""
    namespace: str = Field(default="rampart", pattern=r"^[a-z0-9-]{1,40}$")
    """Prefix of all Redis keys, and name of the folder with the blobs; unique per federation."""
    blobs: str = "blobs"
    """Location of the blobs: a folder, or an object store's URL (s3://bucket/prefix, gs://,
    az://)."""
    blob_cache: Path = Path("blob-cache")
    """Local folder that caches the blobs of an object store."""
    blob_cache_gib: float = Field(default=20.0, gt=0)
    """Maximum size of the blob cache in GiB; the least recently read blobs are removed first."""
    records_mib: float = Field(default=64.0, gt=0)
    """Maximum total size in MiB of the newest rounds' entries in Redis; older entries move to
    blobs."""
    records_kept: int | None = Field(default=None, ge=1)
    """Number of newest rounds whose records are always kept; older records are deleted in groups of
    up to 64. By default, all records are kept."""
    models_kept: int = Field(default=1, ge=1)
    """For each run, the number of newest rounds whose global models the aggregator keeps. Later
    runs can start from the kept models (`model.start`)."""
    disk_quota: Size | None = None
    """Maximum size of the blobs of all runs, such as 200GiB. A run waits in the queue until there
    is room for the estimated size of its blobs. By default, there is no limit."""
    start_models: Path | None = None
    """Folder with safetensors files that submitted experiments may start from (`model.start`). By
    default, runs can start only from models of earlier runs."""
    pool_memory: Size | None = None
    """Maximum size, such as 2GiB, of all rows that each process of the worker holds in memory. The
    rows are the updates of a round, and the data that stages keep from earlier rounds. Blocks of
    rows that exceed the limit are kept in files in the blobs' folder, and read piece by piece. On a
    GPU, blocks are never in files: the worker refuses a run whose blocks exceed the limit. By
    default, there is no limit."""
    operator_token: SecretStr
    """Token of the operator `owner`; there is no default."""
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    """Device that holds the update pools and runs the round engine: cpu, cuda or cuda:1."""
    threads: int = Field(default_factory=share_of_processors, ge=1)
    """Number of the round engine's threads in each process of the worker. By default, the processes
    share the processors that the container may use. Results are bit-identical only between runs
    with the same number of threads."""
    worker_id: str = Field(default_factory=socket.gethostname)
    """Name under which this worker holds the lease. A worker that restarts under the same name gets
    its lease back at once."""
    lease: float = Field(default=10.0, gt=0.5)
    """The lease ends after this many seconds without a renewal; another worker can then take
    over."""
    tls_certificate: Path | None = None
    """PEM file with the certificate for HTTPS."""
    tls_key: Path | None = None
    """PEM file with the certificate's private key."""
    client_token_lifetime: float = Field(default=30 * 86_400, gt=0)
    """Lifetime of a client's token in seconds; the client rotates the token before it expires."""
    joins_per_minute: int = Field(default=600, ge=1)
    """Maximum number of attempts to join per minute from one address."""
    customizations_per_minute: int = Field(default=10, ge=1)
    """Maximum number of customized models per minute that a client may request outside of a
    round."""
    offline_after: float = Field(default=120.0, gt=0)
    """Seconds without a request after which a client counts as offline and is not selected."""
    uploads: int = Field(default=64, ge=1)
    """Maximum number of updates and probes that are read at the same time. Further uploads wait; an
    upload that has waited for a minute is refused. Requests for customized models have a separate
    maximum, which is an eighth of this number, but at least 1."""
    body_idle: float = Field(default=30.0, gt=0)
    """Longest pause in seconds between two chunks of an upload."""
    body_rate: float = Field(default=16_384.0, gt=0)
    """Minimum average rate of an upload, in bytes per second."""
    poll: float = Field(default_factory=half_of_offline_after, gt=0)
    """Maximum duration in seconds of a long poll for a ticket. It must be less than
    `offline_after`, because a client sends no other request while it waits for a ticket. By
    default, it is half of `offline_after`, but at most 60."""
    predictable_draws: bool = False
    """Whether the server's random draws follow from the experiment's seed, as in a simulation. The
    clients know this seed and could mislead the detectors, so this setting is for tests only. By
    default, each run has a secret seed."""
    test_tap: SecretStr | None = None
    """Token with which a red-team test reads every client's update; only for tests on one
    machine."""

    @property
    def _remote_redis(self) -> bool:
        """Whether Redis may be on another machine."""
        redis = urlsplit(self.redis_url)
        return redis.scheme != "unix" and redis.hostname not in LOOPBACK

    @model_validator(mode="after")
    def _safe(self) -> "Settings":
        token = self.operator_token.get_secret_value()
        if len(token) < 16 or token in {"change-me-please-now", "operator-token-here"}:
            raise ValueError("RAMPART_OPERATOR_TOKEN must be a secret of at least 16 characters")
        if token != token.strip():
            # HTTP strips leading and trailing white space from headers, so no operator could send
            # this token.
            raise ValueError("RAMPART_OPERATOR_TOKEN begins or ends with white space")
        if processes() > 1 and self.role != "worker":
            raise ValueError(
                f"torchrun started {processes()} processes, but the role {self.role} uses only "
                "one; set RAMPART_ROLE=worker"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("TLS needs both RAMPART_TLS_CERTIFICATE and RAMPART_TLS_KEY")
        if self.poll >= self.offline_after:
            raise ValueError(
                f"RAMPART_POLL ({self.poll:g}) must be less than RAMPART_OFFLINE_AFTER "
                f"({self.offline_after:g}): otherwise, a client counts as offline while it waits "
                "for a ticket; set RAMPART_POLL to a lower value"
            )
        return self

    @model_validator(mode="after")
    def _production_is_unpredictable(self) -> "Settings":
        remote = {
            "RAMPART_HOST": self.host not in LOOPBACK,
            "RAMPART_REDIS_URL": self._remote_redis,
        }
        if self.predictable_draws and any(remote.values()):
            raise ValueError(
                "RAMPART_PREDICTABLE_DRAWS lets clients mislead the detectors, so it is for tests "
                "on one machine. These settings name another machine: "
                f"{', '.join(name for name, present in remote.items() if present)}"
            )
        return self

    @model_validator(mode="after")
    def _taps_no_production(self) -> "Settings":
        if self.test_tap is None:
            return self
        tap = self.test_tap.get_secret_value()
        if len(tap) < 16 or tap == self.operator_token.get_secret_value():
            raise ValueError(
                "RAMPART_TEST_TAP must be a secret of at least 16 characters, and must differ from "
                "RAMPART_OPERATOR_TOKEN"
            )
        production = {
            "RAMPART_ROLE": self.role != "all",
            "RAMPART_HOST": self.host not in LOOPBACK,
            "RAMPART_TLS_CERTIFICATE": self.tls_certificate is not None,
            "RAMPART_BLOBS": "://" in self.blobs,
            "RAMPART_REDIS_URL": self._remote_redis,
        }
        if wrong := [name for name, present in production.items() if present]:
            raise ValueError(
                "RAMPART_TEST_TAP shows every client's update, so it is only for tests on one "
                f"machine. These settings do not fit such a test: {', '.join(wrong)}"
            )
        return self
