"""Reads of the federation's state in Redis, and simple writes that need no atomic script."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from rampart_fl.services.aggregator.state.batcher import RequestBatcher
from rampart_fl.services.aggregator.state.redis_access import RedisAccess, asking
from rampart_fl.services.aggregator.state.redis_records import (
    BRIEF,
    Barred,
    Brief,
    ClientStanding,
    Event,
    Federation,
    brief_fields,
)
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord, Ticket

Upload = tuple[int, str]
"""A round and a kind of upload."""


class RoundReads(RedisAccess):
    """The queries of the federation's state."""

    def __init__(self, client: "redis.asyncio.Redis", namespace: str) -> None:
        super().__init__(client, namespace)
        self._standings = RequestBatcher(self._stand)

    async def end(self) -> None:
        """Cancels pending queries; to be called before the connection is closed."""
        await self._standings.close()

    async def federation(self) -> Federation | None:
        """The federation, or None before a worker has founded it."""
        raw = await self.ask("hgetall", self.key("federation"))
        if "digest" not in raw:
            return None
        return Federation(
            **brief_fields(raw),
            experiment=json.loads(raw["experiment"]),
            spec=json.loads(raw["spec"]),
            selected=tuple(json.loads(raw.get("selected", "[]"))),
            closing=raw.get("closing", "0-0"),
            snapshot=json.loads(raw.get("snapshot", "{}")),
            mode=cast(Mode | None, raw.get("mode")),
            abstained=tuple(json.loads(raw.get("abstained", "[]"))),
        )

    async def brief(self) -> Brief | None:
        """Only the federation's small fields; None before a worker has founded it."""
        values = await self.ask("hmget", self.key("federation"), BRIEF)
        raw = dict(zip(BRIEF, values, strict=True))
        return Brief(**brief_fields(raw)) if raw["digest"] else None

    async def standing(self, client: str, upload: Upload | None = None) -> ClientStanding:
        """A client's ticket and eviction with the federation's small fields.

        Calls that are made at the same time share one round trip.

        Args:
            client: the client's id.
            upload: the round and the kind of an upload whose receipt is looked up as well.
        """
        return await self._standings.ask((client, upload))

    async def _stand(self, asked: Sequence[tuple[str, Upload | None]]) -> list[ClientStanding]:
        clients = [client for client, _ in asked]
        async with asking(), self.client.pipeline(transaction=False) as pipe:
            pipe.hmget(self.key("federation"), BRIEF)
            pipe.hmget(self.key("tickets"), clients)
            pipe.hmget(self.key("evicted"), clients)
            for client, upload in asked:
                if upload is not None:
                    pipe.hget(self.key(f"receipts:{upload[0]}"), f"{upload[1]}:{client}")
            values, tickets, evictions, *receipts = await pipe.execute()
        raw = dict(zip(BRIEF, values, strict=True))
        brief, held = Brief(**brief_fields(raw)) if raw["digest"] else None, iter(receipts)
        return [
            ClientStanding(
                brief,
                None if ticket is None else Ticket.model_validate_json(ticket),
                None if eviction is None else json.loads(eviction),
                None
                if upload is None or (receipt := next(held)) is None
                else Receipt.model_validate_json(receipt),
            )
            for (_, upload), ticket, eviction in zip(asked, tickets, evictions, strict=True)
        ]

    async def client_of(self, token_hash: str) -> dict[str, Any] | None:
        """{client, expires_at} of the token with this hash."""
        raw = await self.ask("hget", self.key("tokens"), token_hash)
        return None if raw is None else cast(dict[str, Any], json.loads(raw))

    async def client_record(self, client: str) -> dict[str, Any] | None:
        """{registered_at, sample_cap, token_hash, expires_at} of one client."""
        raw = await self.ask("hget", self.key("clients"), client)
        return None if raw is None else cast(dict[str, Any], json.loads(raw))

    async def clients(self) -> dict[str, dict[str, Any]]:
        """Every registered client's record, by id in order."""
        return _by_client(await self.ask("hgetall", self.key("clients")))

    async def evicted(self) -> dict[str, dict[str, Any]]:
        """Every eviction, by client id in order."""
        return _by_client(await self.ask("hgetall", self.key("evicted")))

    async def barred(self) -> Barred:
        """The barred clients, read at a single moment."""
        async with asking(), self.client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self.key("evicted"))
            pipe.hgetall(self.key("quarantined"))
            pipe.hlen(self.key("clients"))
            pipe.hmget(self.key("federation"), ["founders", "mode"])
            evicted, quarantined, clients, (founders, mode) = await pipe.execute()
        return Barred(
            _by_client(evicted),
            _by_client(quarantined),
            clients,
            None if founders is None else int(founders),
            mode,
        )

    async def ticket(self, client: str) -> Ticket | None:
        """A client's outstanding ticket."""
        raw = await self.ask("hget", self.key("tickets"), client)
        return None if raw is None else Ticket.model_validate_json(raw)

    async def tickets(self) -> dict[str, Ticket]:
        """All outstanding tickets."""
        raw = await self.ask("hgetall", self.key("tickets"))
        return {client: Ticket.model_validate_json(raw[client]) for client in sorted(raw)}

    async def receipt(self, round_: int, kind: str, client: str) -> Receipt | None:
        """The receipt of one upload."""
        raw = await self.ask("hget", self.key(f"receipts:{round_}"), f"{kind}:{client}")
        return None if raw is None else Receipt.model_validate_json(raw)

    async def receipts(self, round_: int) -> list[Receipt]:
        """All receipts of a round, sorted by kind and client."""
        raw = await self.ask("hgetall", self.key(f"receipts:{round_}"))
        return [Receipt.model_validate_json(raw[field]) for field in sorted(raw)]

    async def every_receipt(self) -> list[Receipt]:
        """All receipts of all rounds that are still kept."""
        rounds, cursor = set(), 0
        while True:
            cursor, keys = await self.ask("scan", cursor, match=self.key("receipts:*"), count=1000)
            rounds |= {int(key.rpartition(":")[2]) for key in keys}
            if not cursor:
                return [r for number in sorted(rounds) for r in await self.receipts(number)]

    async def record(self, round_: int) -> RoundRecord | None:
        """A finished round's record."""
        raw = await self.ask("hget", self.key("history"), str(round_))
        return None if raw is None else RoundRecord.model_validate_json(raw)

    async def records(self, first: int, last: int) -> list[RoundRecord]:
        """The records of all finished rounds from `first` to `last`, both included."""
        rounds = [str(r) for r in range(max(first, 0), last + 1)]
        if not rounds:
            return []
        raw = await self.ask("hmget", self.key("history"), rounds)
        return [RoundRecord.model_validate_json(text) for text in raw if text is not None]

    async def seen(self) -> dict[str, float]:
        """The Unix time of each client's last request."""
        raw = await self.ask("zrange", self.key("seen"), 0, -1, withscores=True)
        return {client: float(at) for client, at in raw}

    async def saw(self, times: Mapping[str, float]) -> None:
        """Stores the Unix times of clients' last requests."""
        if times:
            await self.ask("zadd", self.key("seen"), dict(times))

    async def add_joins(self, joins: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores join tokens, keyed by their hash."""
        mapping = {hash_: json.dumps(join) for hash_, join in joins.items()}
        await self.ask("hset", self.key("joins"), mapping=mapping)

    async def count_attempt(self, name: str, window: int, now: float) -> int:
        """Counts an attempt; returns how many of this name the current time window now has.

        Args:
            name: name of the attempts.
            window: length of a time window in seconds.
            now: Unix time.
        """
        key = self.key(f"attempts:{name}:{int(now // window)}")
        count = int(await self.ask("incr", key))
        if count == 1:
            await self.ask("expire", key, 2 * window)
        return count

    async def events(self, after: str, block: float, count: int = 1000) -> list[Event]:
        """The events after a position; waits up to `block` seconds for the first one."""
        raw = await self.ask(
            "xread", {self.key("events"): after}, count=count, block=max(1, int(block * 1000))
        )
        entries = raw[0][1] if isinstance(raw, list) and raw else []
        if isinstance(raw, dict) and raw:
            entries = next(iter(raw.values()))
            entries = entries[0] if entries and isinstance(entries[0], list) else entries
        return [Event(position, fields["type"], fields) for position, fields in entries]

    async def last_event(self) -> str:
        """The position of the newest event; "0-0" if there is none."""
        raw = await self.ask("xrevrange", self.key("events"), count=1)
        return raw[0][0] if raw else "0-0"

    async def trim_events(self, kept: int = 1000) -> None:
        """Drops old events, and keeps about the last `kept`.

        Publishing a round also drops old events, so this is for after the last round.
        """
        await self.ask("xtrim", self.key("events"), maxlen=kept)

    async def durable(self) -> bool:
        """Whether Redis reports that it fsyncs every write, so that receipts are durable."""
        try:
            config = await self.client.config_get("append*")
        except ResponseError:
            return False
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis: {error}") from error
        return config.get("appendonly") == "yes" and config.get("appendfsync") == "always"

    async def ping(self) -> None:
        """Raises `Unavailable` unless Redis answers."""
        await self.ask("ping")

    async def customized(self, request: str) -> str | None:
        """The digest of the model that was made for a request; None if there is none yet."""
        return cast(str | None, await self.ask("get", self.key(f"customized:{request}")))


def _by_client(raw: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Parses a hash of JSON objects, and sorts it by client id."""
    return {client: json.loads(raw[client]) for client in sorted(raw)}
