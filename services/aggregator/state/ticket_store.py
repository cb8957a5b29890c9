"""The tickets, which tell clients what to do next, and the clients that asked for a ticket."""

from collections.abc import Sequence
from typing import cast

from rampart_fl.services.aggregator.state.batcher import RequestBatcher
from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess, converted_errors
from rampart_fl.services.aggregator.state.redis_records import (
    SUMMARY_FIELDS,
    ClientRunState,
    parse_bar,
    parse_summary,
)
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.messages import Receipt, Ticket

UploadKey = tuple[int, str]
"""The round and the kind of an upload."""

GRANT = (
    FENCED
    + """
-- KEYS tickets pulls fence events evicted receipts quarantined; ARGV fence client ticket
if fenced(KEYS[3], ARGV[1]) then return {'fenced'} end
redis.call('HDEL', KEYS[2], ARGV[2])
if redis.call('HEXISTS', KEYS[5], ARGV[2]) == 1
  or redis.call('HEXISTS', KEYS[7], ARGV[2]) == 1
  or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
  or redis.call('HEXISTS', KEYS[6], 'update:' .. ARGV[2]) == 1 then return {'kept'} end
-- A worker that takes over handles pulls again that an earlier worker answered with a probe ticket.
if cjson.decode(ARGV[3]).kind == 'probe'
  and redis.call('HEXISTS', KEYS[6], 'probe:' .. ARGV[2]) == 1 then return {'kept'} end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('XADD', KEYS[4], '*', 'type', 'ticket', 'client', ARGV[2])
return {'granted'}
"""
)

PULL = """
-- KEYS state tickets pulls evicted events quarantined; ARGV client
local f = redis.call('HMGET', KEYS[1], 'round', 'phase', 'policy')
if f[3] ~= 'buffered' or f[2] == 'joining' or f[2] == 'evaluating' or f[2] == 'done'
  or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1
  or redis.call('HEXISTS', KEYS[4], ARGV[1]) == 1 or redis.call('HEXISTS', KEYS[6], ARGV[1]) == 1
  then return {'ignored'} end
redis.call('HSET', KEYS[3], ARGV[1], f[1])
redis.call('XADD', KEYS[5], '*', 'type', 'pull', 'client', ARGV[1], 'round', f[1])
return {'asked'}
"""


class TicketStore:
    """Reads tickets, and issues single tickets while a round is open.

    `RoundStore.open` issues the tickets at the start of a round.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
        federation: keys of the federation, such as those of the barred clients and of the worker's
            fencing token.
    """

    def __init__(self, redis: RedisAccess, keys: RunKeys, federation: FederationKeys) -> None:
        self.redis = redis
        self.keys = keys
        self.federation = federation
        self._standings = RequestBatcher(self._stand)

    async def aclose(self) -> None:
        """Cancels pending ticket lookups; call this method before the connection is closed."""
        await self._standings.close()

    async def grant(self, fence: int, client: str, ticket: Ticket) -> None:
        """Issues a ticket to one client while the round is open."""
        keys = self.keys
        await self.redis.run(
            GRANT,
            (
                *(keys.tickets, keys.pulls, self.federation.fence, keys.events, keys.evicted),
                *(keys.receipts(ticket.round), keys.quarantined),
            ),
            fence,
            client,
            ticket.model_dump_json(),
        )

    async def pull(self, client: str) -> None:
        """Asks the worker for a client's ticket (buffered policy); the call is idempotent."""
        keys = self.keys
        names = (keys.state, keys.tickets, keys.pulls, keys.evicted, keys.events)
        await self.redis.run(PULL, (*names, keys.quarantined), client)

    async def of(self, client: str) -> Ticket | None:
        """A client's outstanding ticket."""
        raw = await self.redis.ask("hget", self.keys.tickets, client)
        return None if raw is None else read_model(Ticket, raw)

    async def holders(self) -> list[str]:
        """The clients with an outstanding ticket, in no particular order."""
        return cast(list[str], await self.redis.ask("hkeys", self.keys.tickets))

    async def outstanding(self) -> dict[str, Ticket]:
        """All outstanding tickets, keyed and sorted by client id."""
        raw = await self.redis.ask("hgetall", self.keys.tickets)
        return {client: read_model(Ticket, raw[client]) for client in sorted(raw)}

    async def standing(self, client: str, upload: UploadKey | None = None) -> ClientRunState:
        """A client's ticket and slot, and its evictions from the run and from the federation.

        Simultaneous calls share one round trip to Redis.

        Args:
            client: the client's id.
            upload: round and kind of an upload whose receipt is looked up, too; None to look up no
                receipt.
        """
        return await self._standings.ask((client, upload))

    async def _stand(
        self, questions: Sequence[tuple[str, UploadKey | None]]
    ) -> list[ClientRunState]:
        clients, keys = [client for client, _ in questions], self.keys
        hashes = (keys.tickets, keys.evicted, self.federation.barred, keys.members, keys.answers)
        async with converted_errors(), self.redis.client.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.state, SUMMARY_FIELDS)
            for name in hashes:
                pipe.hmget(name, clients)
            for client, upload in questions:
                if upload is not None:
                    pipe.hget(keys.receipts(upload[0]), f"{upload[1]}:{client}")
            values, *replies = await pipe.execute()
        summary, held = parse_summary(values), iter(replies[len(hashes) :])
        standings = []
        for (_, upload), ticket, eviction, barred, slot, answer in zip(
            questions, *replies[: len(hashes)], strict=True
        ):
            receipt = None if upload is None else next(held)
            standings.append(
                ClientRunState(
                    summary,
                    None if ticket is None else read_model(Ticket, ticket),
                    None if eviction is None else parse_bar(eviction),
                    None if barred is None else parse_bar(barred),
                    None if slot is None else int(slot),
                    answer is not None,
                    None if receipt is None else read_model(Receipt, receipt),
                )
            )
        return standings
