"""The state of a run: one hash with the run's experiment, phase, status, mode and snapshot."""

import json
import secrets
from dataclasses import dataclass

from rampart_fl.services.aggregator.state.audit_log import AUDITED, Act, Attribution, AuditLog
from rampart_fl.services.aggregator.state.event_log import EVENTS_KEPT
from rampart_fl.services.aggregator.state.keys import SCHEMA, FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess
from rampart_fl.services.aggregator.state.redis_records import (
    SUMMARY_FIELDS,
    RunDetails,
    RunSummary,
    parse_run,
    parse_summary,
)
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import BARRING_MODES, Mode
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.audit import ActName
from rampart_fl.shared.protocol.messages import RunState

START = (
    FENCED
    + """
-- KEYS state fence events runs queue current federation_events
-- ARGV fence run fields_json now
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
if redis.call('GET', KEYS[6]) == ARGV[2] then return {'same'} end
if redis.call('LINDEX', KEYS[5], 0) ~= ARGV[2] or redis.call('EXISTS', KEYS[6]) == 1 then
  return {'gone'}
end
redis.call('LPOP', KEYS[5])
redis.call('SET', KEYS[6], ARGV[2])
for name, value in pairs(cjson.decode(ARGV[3])) do redis.call('HSET', KEYS[1], name, value) end
local info = cjson.decode(redis.call('HGET', KEYS[4], ARGV[2]))
info.state, info.started_at = 'running', tonumber(ARGV[4])
redis.call('HSET', KEYS[4], ARGV[2], cjson.encode(info))
redis.call('XADD', KEYS[3], '*', 'type', 'founded')
redis.call('XADD', KEYS[7], '*', 'type', 'started', 'run', ARGV[2])
return {'founded'}
"""
)

STATUS = (
    AUDITED
    + """
-- KEYS state events held; ARGV status reason run
local now = redis.call('HGET', KEYS[1], 'status')
if not now then return {'unfounded'} end
local over = redis.call('HGET', KEYS[1], 'phase') == 'done'
if over or (now == 'stopping' and ARGV[1] ~= 'stopping') then return {'over', now} end
if now == ARGV[1] then return {'already', now} end
if not recorded() then return {'moved'} end
redis.call('HSET', KEYS[1], 'status', ARGV[1])
if ARGV[1] == 'stopping' then redis.call('HSET', KEYS[1], 'stopped_because', ARGV[2]) end
redis.call('XADD', KEYS[2], '*', 'type', ARGV[1])
-- A paused or stopped run waits for nothing; possibly, no worker is there to record this.
if ARGV[1] ~= 'running' and redis.call('HDEL', KEYS[3], ARGV[3]) == 1 then
  redis.call('XADD', KEYS[2], '*', 'type', 'continued')
end
return {'done', ARGV[1]}
"""
)

MODE = (
    AUDITED
    + """
-- KEYS state events; ARGV mode reason bars ('1' for a mode that bars clients)
local now = redis.call('HGET', KEYS[1], 'status')
if not now then return {'unfounded'} end
local over = redis.call('HGET', KEYS[1], 'phase') == 'done'
if over or now == 'stopping' then return {'over', now} end
-- Older versions did not store this field.
local conflict = redis.call('HGET', KEYS[1], 'barring_conflict') or ''
if ARGV[3] == '1' and conflict ~= '' then return {'conflict', conflict} end
if redis.call('HGET', KEYS[1], 'mode') == ARGV[1] then return {'already', ARGV[1]} end
if not recorded() then return {'moved'} end
redis.call('HSET', KEYS[1], 'mode', ARGV[1])
redis.call('XADD', KEYS[2], '*', 'type', 'mode', 'mode', ARGV[1], 'reason', ARGV[2])
return {'done', ARGV[1]}
"""
)
STEERS: dict[str, ActName] = {"paused": "pause", "running": "resume", "stopping": "stop"}
"""Maps each status to the action that sets the status, by the action's name in the audit log."""

HOLD = (
    FENCED
    + """
-- KEYS held fence events state; ARGV fence run reason
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
local status, reason = redis.call('HGET', KEYS[4], 'status'), ARGV[3]
-- An operator may have paused or stopped the run after the worker read the run's status.
if status == 'paused' or status == 'stopping' then reason = '' end
local waited = redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
redis.call('DEL', KEYS[1])
if reason ~= '' then
  redis.call('HSET', KEYS[1], ARGV[2], reason)
  if not waited then redis.call('XADD', KEYS[3], '*', 'type', 'waiting', 'reason', reason) end
elseif waited then
  redis.call('XADD', KEYS[3], '*', 'type', 'continued')
end
return {'done'}
"""
)

EXPIRE = (
    FENCED
    + """
-- KEYS state fence events; ARGV fence reason
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
local f = redis.call('HMGET', KEYS[1], 'phase', 'status')
if f[1] ~= 'joining' or f[2] == 'stopping' then return {'started'} end
redis.call('HSET', KEYS[1], 'status', 'stopping', 'stopped_because', ARGV[2])
redis.call('XADD', KEYS[3], '*', 'type', 'stopping')
return {'done'}
"""
)

END = (
    FENCED
    + """
-- KEYS state fence events tickets pulls runs current federation_events history segments receipts
--   members evicted late held
-- ARGV fence run now state reason last_round segment events_kept
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
if redis.call('GET', KEYS[7]) ~= ARGV[2] then return {'ended'} end
local state, reason = ARGV[4], ARGV[5]
-- A run that was stopped before its first round counts as cancelled.
if state == 'finished' and redis.call('HEXISTS', KEYS[1], 'founders') == 0 then
  state = 'cancelled'
end
if reason == '' then reason = redis.call('HGET', KEYS[1], 'stopped_because') or '' end
redis.call('DEL', KEYS[4], KEYS[5], KEYS[7])
if redis.call('HDEL', KEYS[15], ARGV[2]) == 1 then
  redis.call('XADD', KEYS[3], '*', 'type', 'continued')
end
redis.call('HSET', KEYS[1], 'phase', 'done', 'status', state, 'deadline', '')
if ARGV[7] ~= '' then
  redis.call('UNLINK', KEYS[9], KEYS[14])
  redis.call('HSET', KEYS[10], ARGV[6], ARGV[7])
end
redis.call('PERSIST', KEYS[11])  -- These receipts have the measurements of the final models.
local info = cjson.decode(redis.call('HGET', KEYS[6], ARGV[2]))
info.state, info.reason, info.ended_at = state, reason, tonumber(ARGV[3])
info.round = tonumber(redis.call('HGET', KEYS[1], 'round'))
info.clients, info.evicted = redis.call('HLEN', KEYS[12]), 0
for _, client in ipairs(redis.call('HKEYS', KEYS[13])) do
  info.evicted = info.evicted + redis.call('HEXISTS', KEYS[12], client)
end
redis.call('HSET', KEYS[6], ARGV[2], cjson.encode(info))
redis.call('XADD', KEYS[3], '*', 'type', 'ended', 'state', state)
redis.call('EXPIRE', KEYS[3], ARGV[8])
redis.call('XADD', KEYS[8], '*', 'type', 'ended', 'run', ARGV[2])
return {'ended'}
"""
)


@dataclass(frozen=True)
class RunStore:
    """Starts, reads, controls and ends one run.

    Args:
        redis: the connection to Redis.
        run: the run's id.
        keys: the keys of the run.
        federation: keys of the federation, such as those of the worker's fencing token and of the
            registry of runs.
        audit: the log of operators' actions.
    """

    redis: RedisAccess
    run: str
    keys: RunKeys
    federation: FederationKeys
    audit: AuditLog

    async def start(
        self,
        fence: int,
        experiment: Experiment,
        spec: ModelSpec,
        snapshot: Snapshot,
        now: float,
        deadline: float | None = None,
        server_seed: int | None = None,
        barring_conflict: str = "",
    ) -> str:
        """Starts the run at the head of the queue, so that clients can join the run.

        Args:
            fence: the worker's fencing token.
            experiment: the run's experiment.
            spec: the layout of the experiment's model.
            snapshot: pointers to the first models.
            now: Unix time.
            deadline: Unix time at which joining ends; None if joining has no deadline.
            server_seed: seed of the server's random draws; by default, a secret random seed.
            barring_conflict: why operators may not switch the run to a mode that bars clients;
                empty if they may.
        Returns:
            "founded" if this call started the run, or "same" if the run had already started and is
            the current run. The result is "gone" if the run cannot start, because another run is
            current, or because the run is not first in the queue.
        """
        fields = {
            "spec": spec.model_dump_json(),
            "policy": experiment.policy,
            "status": "running",
            "phase": "joining",
            "round": "0",
            "alive_at": str(now),
            "deadline": "" if deadline is None else str(deadline),
            "snapshot": snapshot.model_dump_json(),
            "schema": SCHEMA,
            "digest": experiment.digest(),
            "barring_conflict": barring_conflict,
            "server_seed": str(secrets.randbits(256) if server_seed is None else server_seed),
        }
        keys, federation = self.keys, self.federation
        names = (
            *(keys.state, federation.fence, keys.events, federation.runs),
            *(federation.queue, federation.current, federation.events),
        )
        return (await self.redis.run(START, names, fence, self.run, json.dumps(fields), now))[0]

    async def read(self) -> RunDetails | None:
        """The whole state of the run; None if no worker has started the run yet.

        Raises:
            ConfigurationError: the stored state has a schema that this version does not read.
        """
        return parse_run(await self.redis.ask("hgetall", self.keys.state))

    async def summary(self) -> RunSummary | None:
        """The small fields of the run's state; None if no worker has started the run yet."""
        return parse_summary(await self.redis.ask("hmget", self.keys.state, SUMMARY_FIELDS))

    async def set_status(self, status: str, by: Attribution) -> tuple[str, str]:
        """Sets the status to running, paused or stopping.

        Returns:
            - ("done", the new status) if this call has changed the status;
            - ("already", the status) if the run already had this status;
            - ("over", the current status) if the run has ended or is stopping; nothing changes;
            - ("unfounded", "") if the run has not started.
        """
        act = Act(STEERS[status], by, self.run)
        keys = (self.keys.state, self.keys.events, self.federation.held)
        answer = await self.audit.perform(act, STATUS, keys, status, by.reason, self.run)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def set_mode(self, mode: Mode, by: Attribution) -> tuple[str, str]:
        """Sets the mode of evictions for all rounds whose results are computed from now on.

        Returns:
            - ("done", the mode) if this call has changed the mode;
            - ("already", the mode) if an operator had already set this mode;
            - ("conflict", the reason) if the run may not switch to this mode; nothing changes;
            - ("over", the current status) if the run has ended or is stopping; nothing changes;
            - ("unfounded", "") if the run has not started.
        """
        act = Act("mode", by, self.run, details={"mode": mode})
        keys, bars = (self.keys.state, self.keys.events), "1" if mode in BARRING_MODES else ""
        answer = await self.audit.perform(act, MODE, keys, mode, by.reason, bars)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def hold(self, fence: int, reason: str) -> None:
        """Records what the run has to wait for; "" means that the run need not wait.

        An event reports when the run begins to wait, and another event reports when the wait ends.
        If only the reason changes, there is no event. If the run is paused or stopping, the method
        records that the run need not wait.
        """
        if reason != await self.wait_reason():
            keys = (self.federation.held, self.federation.fence, self.keys.events, self.keys.state)
            await self.redis.run(HOLD, keys, fence, self.run, reason)

    async def wait_reason(self) -> str:
        """What the run waits for, as recorded by `hold`; empty if the run need not wait."""
        reason: str | None = await self.redis.ask("hget", self.federation.held, self.run)
        return reason or ""

    async def expire(self, fence: int, reason: str) -> None:
        """Stops a run in the phase `joining`; the final state of the run is then `cancelled`."""
        keys = (self.keys.state, self.federation.fence, self.keys.events)
        await self.redis.run(EXPIRE, keys, fence, reason)

    async def end(
        self,
        fence: int,
        now: float,
        state: RunState = "finished",
        reason: str = "",
        segment: tuple[int, str] | None = None,
    ) -> None:
        """Ends the run, so that the next run can start.

        Args:
            fence: the worker's fencing token.
            now: Unix time.
            state: how the run ended; `finished` becomes `cancelled` if no round was opened.
            reason: why the run failed. If `reason` is empty and the run was stopped, the reason for
                stopping is stored instead.
            segment: the pair (last round, digest) of a segment with all entries that are still in
                Redis; None if Redis has no entries.
        """
        keys, federation = self.keys, self.federation
        summary = await self.summary()
        names = (
            *(keys.state, federation.fence, keys.events, keys.tickets, keys.pulls),
            *(federation.runs, federation.current, federation.events),
            *(keys.history, keys.segments, keys.receipts(summary.round if summary else 0)),
            *(keys.members, keys.evicted, keys.late, federation.held),
        )
        last, digest = segment or ("", "")
        arguments = (fence, self.run, now, state, reason, last, digest, EVENTS_KEPT)
        await self.redis.run(END, names, *arguments)
