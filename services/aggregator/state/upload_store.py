"""Receipts of stored uploads: updates, answers to probes, and evaluations."""

from collections.abc import Sequence

from rampart_fl.services.aggregator.state.batcher import RequestBatcher
from rampart_fl.services.aggregator.state.keys import RunKeys
from rampart_fl.services.aggregator.state.redis_access import Call, RedisAccess
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.messages import Receipt

KEPT = 86_400
"""Seconds for which the receipts of a closed round are kept. As long as the receipts are kept, a
repeated upload gets the receipt of the first upload."""

ACCEPT = """
-- KEYS state tickets receipts evicted events; ARGV client round kind digest receipt_json kept
if redis.call('HEXISTS', KEYS[4], ARGV[1]) == 1 then return {'evicted'} end
local field = ARGV[3] .. ':' .. ARGV[1]
local held = redis.call('HGET', KEYS[3], field)
if held then
  if cjson.decode(held).digest == ARGV[4] then return {'accepted', held} end
  return {'conflict'}
end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase', 'policy')
local wanted = {update = 'train', probe = 'probe', evaluation = 'evaluate'}
local raw = redis.call('HGET', KEYS[2], ARGV[1])
local ticket = raw and cjson.decode(raw)
if not ticket or ticket.round ~= tonumber(ARGV[2]) or ticket.kind ~= wanted[ARGV[3]] then
  -- At the end of a round, its tickets are deleted unless the policy is buffered.
  local ended = ARGV[2] == f[1] and ARGV[3] ~= 'evaluation' and f[3] ~= 'buffered' and
    f[2] ~= 'joining' and f[2] ~= 'collecting'
  return {(tonumber(ARGV[2]) < tonumber(f[1]) or ended) and 'late' or 'no-ticket'}
end
local open = ARGV[3] == 'evaluation' and f[2] == 'evaluating' or ARGV[3] ~= 'evaluation' and
  (f[2] == 'collecting' or (f[3] == 'buffered' and f[2] ~= 'evaluating' and f[2] ~= 'done'))
if not open then return {'late'} end
-- The receipt's own text is kept: re-encoding would round its numbers.
redis.call('HSET', KEYS[3], field, ARGV[5])
-- Under the buffered policy, a round may be over when its first upload arrives.
if (ARGV[2] ~= f[1] or f[2] == 'published' or f[2] == 'failed')
    and redis.call('TTL', KEYS[3]) == -1 then
  redis.call('EXPIRE', KEYS[3], ARGV[6])
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[5], '*', 'type', ARGV[3], 'client', ARGV[1], 'round', ARGV[2],
  'receipt', ARGV[5])
return {'accepted', ARGV[5]}
"""

LATE = """
-- KEYS state history late events; ARGV client round
local f = redis.call('HMGET', KEYS[1], 'round', 'phase')
local closing = f[1] == ARGV[2] and f[2] == 'aggregating'
if not closing and redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then return {'old'} end
local held = redis.call('HGET', KEYS[3], ARGV[2])
if held and string.find(' ' .. held .. ' ', ' ' .. ARGV[1] .. ' ', 1, true) then
  return {'known'}
end
redis.call('HSET', KEYS[3], ARGV[2], held and held .. ' ' .. ARGV[1] or ARGV[1])
redis.call('XADD', KEYS[4], '*', 'type', 'late', 'client', ARGV[1], 'round', ARGV[2])
return {'noted'}
"""


class UploadStore:
    """Accepts uploads, and reads their receipts.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
    """

    def __init__(self, redis: RedisAccess, keys: RunKeys) -> None:
        self.redis = redis
        self.keys = keys
        self._accepting = RequestBatcher(self._accept)

    async def aclose(self) -> None:
        """Cancels pending uploads; call this method before the connection is closed."""
        await self._accepting.close()

    async def accept(self, receipt: Receipt) -> tuple[str, Receipt | None]:
        """Records an upload whose blob is already stored; the call is idempotent.

        Returns:
            ("accepted", the stored receipt), or
            ("evicted" | "conflict" | "late" | "no-ticket", None).
        """
        return await self._accepting.ask(receipt)

    async def _accept(self, receipts: Sequence[Receipt]) -> list[tuple[str, Receipt | None]]:
        """Records a batch of uploads in one round trip and with one fsync of Redis."""
        keys, texts = self.keys, [receipt.model_dump_json() for receipt in receipts]
        calls: list[Call] = [
            (
                (
                    *(keys.state, keys.tickets, keys.receipts(r.round)),
                    *(keys.evicted, keys.events),
                ),
                (r.client, r.round, r.kind, r.digest, text, KEPT),
            )
            for r, text in zip(receipts, texts, strict=True)
        ]
        answers = await self.redis.run_all(ACCEPT, calls)
        return [
            (answer, _same_or_read(receipt, text, *stands) if stands else None)
            for receipt, text, (answer, *stands) in zip(receipts, texts, answers, strict=True)
        ]

    async def note_late(self, client: str, round_: int) -> None:
        """Stores a note that a member's update came after the end of a round.

        The store accepts notes only for the round that is being aggregated, and for rounds whose
        entries are in Redis. The total size of the notes is therefore bounded, however often a
        client uploads.
        """
        keys = self.keys
        names = (keys.state, keys.history, keys.late, keys.events)
        await self.redis.run(LATE, names, client, round_)

    async def receipt(self, round_: int, kind: str, client: str) -> Receipt | None:
        """The receipt of one upload; None if no receipt is stored."""
        raw = await self.redis.ask("hget", self.keys.receipts(round_), f"{kind}:{client}")
        return None if raw is None else read_model(Receipt, raw)

    async def receipts(self, round_: int) -> list[Receipt]:
        """All receipts of a round, sorted by kind and client."""
        raw = await self.redis.ask("hgetall", self.keys.receipts(round_))
        return [read_model(Receipt, raw[field]) for field in sorted(raw)]

    async def every_receipt(self) -> list[Receipt]:
        """All receipts that are still kept, sorted by round."""
        keys = await self.redis.keys(self.keys.receipts("*"))
        rounds = {int(key.rpartition(":")[2]) for key in keys}
        return [r for number in sorted(rounds) for r in await self.receipts(number)]


def _same_or_read(receipt: Receipt, text: str, stands: str) -> Receipt:
    """Returns `receipt` if its text equals the stored text `stands`; otherwise, parses `stands`."""
    return receipt if stands == text else read_model(Receipt, stands)
