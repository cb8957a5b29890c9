"""The run: one hash holds its experiment, phase, status, mode and snapshot."""

import json
from dataclasses import dataclass

from rampart_fl.services.aggregator.state.audit_log import AUDITED, Act, Attribution, AuditLog
from rampart_fl.services.aggregator.state.keys import SCHEMA, FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess
from rampart_fl.services.aggregator.state.redis_records import (
    BRIEF,
    Brief,
    Federation,
    parse_brief,
    parse_federation,
)
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.audit import ActName

FOUND = (
    FENCED
    + """
-- KEYS federation fence events; ARGV fence digest fields_json
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
local known = redis.call('HGET', KEYS[1], 'digest')
if known then return {known == ARGV[2] and 'same' or 'other', known} end
for name, value in pairs(cjson.decode(ARGV[3])) do redis.call('HSET', KEYS[1], name, value) end
redis.call('XADD', KEYS[3], '*', 'type', 'founded')
return {'founded'}
"""
)

STATUS = (
    AUDITED
    + """
-- KEYS federation events; ARGV status
local now = redis.call('HGET', KEYS[1], 'status')
if not now then return {'unfounded'} end
if now == 'finished' or (now == 'stopping' and ARGV[1] ~= 'stopping') then return {'over', now} end
if now == ARGV[1] then return {'already', now} end
if not recorded() then return {'moved'} end
redis.call('HSET', KEYS[1], 'status', ARGV[1])
redis.call('XADD', KEYS[2], '*', 'type', ARGV[1])
return {'done', ARGV[1]}
"""
)

MODE = (
    AUDITED
    + """
-- KEYS federation events; ARGV mode reason
local now = redis.call('HGET', KEYS[1], 'status')
if not now then return {'unfounded'} end
if now == 'finished' or now == 'stopping' then return {'over', now} end
if redis.call('HGET', KEYS[1], 'mode') == ARGV[1] then return {'already', ARGV[1]} end
if not recorded() then return {'moved'} end
redis.call('HSET', KEYS[1], 'mode', ARGV[1])
redis.call('XADD', KEYS[2], '*', 'type', 'mode', 'mode', ARGV[1], 'reason', ARGV[2])
return {'done', ARGV[1]}
"""
)
STEERS: dict[str, ActName] = {"paused": "pause", "running": "resume", "stopping": "stop"}
"""The name of the act that sets each status, for the audit log."""

FINISH = (
    FENCED
    + """
-- KEYS federation fence events tickets; ARGV fence
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
redis.call('DEL', KEYS[4])
redis.call('HSET', KEYS[1], 'phase', 'done', 'status', 'finished', 'deadline', '')
redis.call('XADD', KEYS[3], '*', 'type', 'finished')
return {'finished'}
"""
)


@dataclass(frozen=True)
class RunStore:
    """Creates, reads, steers and ends the run.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
        federation: keys of the federation, for the worker's fencing token.
        audit: the log of what operators do.
    """

    redis: RedisAccess
    keys: RunKeys
    federation: FederationKeys
    audit: AuditLog

    async def found(
        self,
        fence: int,
        experiment: Experiment,
        spec: ModelSpec,
        snapshot: Snapshot,
        now: float,
        deadline: float | None = None,
    ) -> tuple[str, str]:
        """Writes a new federation, unless there is one already.

        Args:
            fence: the worker's fencing token.
            experiment: the experiment to run.
            spec: the layout of the experiment's model.
            snapshot: pointers to the first models.
            now: Unix time.
            deadline: Unix time at which joining ends; None if joining has no deadline.
        Returns:
            ("founded", the digest of the experiment) if there was no federation. Otherwise
            ("same" | "other", the digest of the existing federation's experiment).
        """
        digest = experiment.digest()
        fields = {
            "experiment": experiment.model_dump_json(),
            "spec": spec.model_dump_json(),
            "policy": experiment.policy,
            "status": "running",
            "phase": "joining",
            "round": "0",
            "alive_at": str(now),
            "deadline": "" if deadline is None else str(deadline),
            "snapshot": snapshot.model_dump_json(),
            "schema": SCHEMA,
            "digest": digest,
        }
        keys = (self.keys.federation, self.federation.fence, self.keys.events)
        answer = await self.redis.run(FOUND, keys, fence, digest, json.dumps(fields))
        return answer[0], answer[1] if len(answer) > 1 else digest

    async def read(self) -> Federation | None:
        """The whole state; None if no worker has created the federation yet.

        Raises:
            Unavailable: the state has the older schema, and no worker has converted it yet.
            ConfigurationError: the stored state has another schema.
        """
        return parse_federation(await self.redis.ask("hgetall", self.keys.federation))

    async def brief(self) -> Brief | None:
        """Only the small fields; None if no worker has created the federation yet."""
        return parse_brief(await self.redis.ask("hmget", self.keys.federation, BRIEF))

    async def set_status(self, status: str, by: Attribution) -> tuple[str, str]:
        """Sets the status to running, paused or stopping.

        Returns:
            ("done" | "already" | "over", the current status), or ("unfounded", "") if there is no
            federation.
        """
        act, keys = Act(STEERS[status], by), (self.keys.federation, self.keys.events)
        answer = await self.audit.perform(act, STATUS, keys, status)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def set_mode(self, mode: Mode, by: Attribution) -> tuple[str, str]:
        """Sets the mode of evictions from now on.

        Returns:
            ("done" | "already", the mode), ("over", the status) if the run has ended or is
            ending, or ("unfounded", "") if there is no federation.
        """
        act = Act("mode", by, details={"mode": mode})
        keys = (self.keys.federation, self.keys.events)
        answer = await self.audit.perform(act, MODE, keys, mode, by.reason)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def finish(self, fence: int) -> None:
        """Ends the run."""
        keys, federation = self.keys, self.federation
        names = (keys.federation, federation.fence, keys.events, keys.tickets)
        await self.redis.run(FINISH, names, fence)
