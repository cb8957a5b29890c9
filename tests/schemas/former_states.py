"""Dumps of whole federations that earlier versions stored, which this version must convert.

A dump has every key of the federation's namespace, and every blob in base64. In all dumps, three
clients of FedCAP have finished two of four rounds, and one of them has sent its update for the
third. The dump of schema 2 has one operator in addition.
"""

import base64
import json
from pathlib import Path
from typing import Any

import redis

from rampart_fl.services.aggregator.state.keys import prefix_of

SCHEMA_1 = Path(__file__).with_name("schema-1.json")
SCHEMA_2 = Path(__file__).with_name("schema-2.json")


def restore(dump: Path, url: str, namespace: str, blobs: Path) -> dict[str, Any]:
    """Writes a dump into Redis and into a folder of blobs; returns the values of its keys."""
    stored = json.loads(dump.read_text())
    with redis.Redis.from_url(url, decode_responses=True) as client:
        for name, key in stored["keys"].items():
            _write(client, prefix_of(namespace) + name, key["type"], key["value"])
    for digest, data in stored["blobs"].items():
        path = blobs / digest[:2] / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
    return {name: key["value"] for name, key in stored["keys"].items()}


def _write(client: "redis.Redis[str]", key: str, kind: str, value: Any) -> None:
    if kind == "string":
        client.set(key, value)
    elif kind == "hash":
        client.hset(key, mapping=value)
    elif kind == "list":
        client.rpush(key, *value)
    elif kind == "zset":
        client.zadd(key, dict(value))
    else:
        for position, fields in value:
            client.xadd(key, fields, id=position)
