"""The lease, which at most one worker holds at a time, and the lease's fencing token."""

from dataclasses import dataclass

from rampart_fl.services.aggregator.state.keys import FederationKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess

STATE = """
-- The state of the run that is executed now; nil if there is none.
local function current_state(current, prefix)
  local run = redis.call('GET', current)
  return run and prefix .. 'run:' .. run .. ':state'
end
"""

ACQUIRE = (
    STATE
    + """
-- KEYS lease fence current
-- ARGV worker ttl_ms now own ('1' to take over a lease held under the same name) prefix
local holder = redis.call('GET', KEYS[1])
if holder and (holder ~= ARGV[1] or ARGV[4] == '0') then return {'held', holder} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local fence = redis.call('INCR', KEYS[2])
local state = current_state(KEYS[3], ARGV[5])
if state then
  local f = redis.call('HMGET', state, 'alive_at', 'deadline')
  if f[1] and f[2] and f[2] ~= '' then
    local away = math.max(0, tonumber(ARGV[3]) - tonumber(f[1]))
    redis.call('HSET', state, 'deadline', string.format('%.6f', tonumber(f[2]) + away))
  end
  redis.call('HSET', state, 'alive_at', ARGV[3])
end
return {'acquired', tostring(fence)}
"""
)

RENEW = (
    FENCED
    + STATE
    + """
-- KEYS lease fence current; ARGV worker fence ttl_ms now prefix
if redis.call('GET', KEYS[1]) ~= ARGV[1] or fenced(KEYS[2], ARGV[2]) then return {'fenced'} end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local state = current_state(KEYS[3], ARGV[5])
if state then redis.call('HSET', state, 'alive_at', ARGV[4]) end
return {'renewed'}
"""
)

RELEASE = (
    FENCED
    + """
-- KEYS lease fence; ARGV worker fence
if redis.call('GET', KEYS[1]) == ARGV[1] and not fenced(KEYS[2], ARGV[2]) then
  redis.call('DEL', KEYS[1])
end
return {'released'}
"""
)


@dataclass(frozen=True)
class LeaseStore:
    """Acquires, extends and releases the lease.

    Each new lease gets a new fencing token. Every script of a worker compares the worker's token
    with the newest token. If the worker has lost its lease, its token is outdated, and the script
    writes nothing.

    Args:
        redis: the connection to Redis.
        keys: the keys of the federation. With these keys, `acquire` finds the current run and
            extends the run's deadline.
    """

    redis: RedisAccess
    keys: FederationKeys

    async def acquire(self, worker: str, ttl: float, now: float, own: bool = True) -> int | None:
        """Acquires the lease; returns its fencing token, or None if another worker holds the lease.

        The current run may have a deadline, for example the deadline of an open round. `acquire`
        adds to this deadline the time that has passed since a worker last acquired or extended the
        lease.

        Args:
            worker: name of the worker.
            ttl: duration of the lease in seconds.
            now: the current Unix time by Redis' clock; the deadline refers to the same clock.
            own: whether the worker may take over a lease that is held under the same name.
        """
        keys = (self.keys.lease, self.keys.fence, self.keys.current)
        arguments = (worker, int(ttl * 1000), now, int(own), self.keys.prefix)
        answer = await self.redis.run(ACQUIRE, keys, *arguments)
        return int(answer[1]) if answer[0] == "acquired" else None

    async def renew(self, worker: str, fence: int, ttl: float, now: float) -> None:
        """Extends the lease; raises `LeaseLost` if the lease was lost."""
        keys = (self.keys.lease, self.keys.fence, self.keys.current)
        arguments = (worker, fence, int(ttl * 1000), now, self.keys.prefix)
        await self.redis.run(RENEW, keys, *arguments)

    async def holder(self) -> str | None:
        """The name of the worker that holds the lease; None if no worker holds it."""
        name: str | None = await self.redis.ask("get", self.keys.lease)
        return name

    async def release(self, worker: str, fence: int) -> None:
        """Releases the lease, so that a standby worker can acquire it at once."""
        await self.redis.run(RELEASE, (self.keys.lease, self.keys.fence), worker, fence)
