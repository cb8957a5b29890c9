"""The registry of runs: the queue, the current run, and how each run ended.

An entry of the registry is a `RunInfo` as JSON. While a run is executed, only the run's state (see
run_store.py) has the current status and round. When the run ends, its entry gets the final status
and the last round.
"""

import json
from dataclasses import dataclass
from typing import cast

from rampart_fl.services.aggregator.state.audit_log import AUDITED, Act, Attribution, AuditLog
from rampart_fl.services.aggregator.state.keys import MIGRATED, SCHEMA, FederationKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.runs import RunInfo

LONGEST_NAME = 48
"""Maximum length of a run's name, which is the part of its id before the number."""
FOUNDING = "founding"
"""The submission key of the experiment in the aggregator's settings (RAMPART_EXPERIMENT)."""

SUBMIT = (
    AUDITED
    + """
-- KEYS submissions runs queue run_counter state events; ARGV submission run number info experiment
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return {'known', known} end
if tonumber(redis.call('GET', KEYS[4]) or 0) + 1 ~= tonumber(ARGV[3]) then return {'taken'} end
if not recorded() then return {'moved'} end
redis.call('SET', KEYS[4], ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('HSET', KEYS[5], 'experiment', ARGV[5])
redis.call('RPUSH', KEYS[3], ARGV[2])
redis.call('XADD', KEYS[6], '*', 'type', 'submitted', 'run', ARGV[2])
return {'submitted', ARGV[2]}
"""
)

CANCEL = """
-- KEYS runs queue events; ARGV run now reason
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local info = cjson.decode(raw)
if info.state ~= 'queued' then return {info.state} end
if not recorded() then return {'moved'} end
redis.call('LREM', KEYS[2], 0, ARGV[1])
info.state, info.reason, info.ended_at = 'cancelled', ARGV[3], tonumber(ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(info))
redis.call('XADD', KEYS[3], '*', 'type', 'ended', 'run', ARGV[1])
return {'cancelled'}
"""

FAIL_QUEUED = (
    FENCED
    + """
-- KEYS runs queue events fence; ARGV fence run now reason state
if fenced(KEYS[4], ARGV[1]) then return {'fenced'} end
local raw = redis.call('HGET', KEYS[1], ARGV[2])
local info = raw and cjson.decode(raw)
if not info or info.state ~= 'queued' then return {'gone'} end
redis.call('LREM', KEYS[2], 0, ARGV[2])
info.state, info.reason, info.ended_at = ARGV[5], ARGV[4], tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[2], cjson.encode(info))
redis.call('XADD', KEYS[3], '*', 'type', 'ended', 'run', ARGV[2])
return {'done'}
"""
)

DELETE = (
    AUDITED
    + """
-- KEYS runs queue submissions current deleted events; ARGV run
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
if redis.call('GET', KEYS[4]) == ARGV[1] then return {'current'} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('LREM', KEYS[2], 0, ARGV[1])
redis.call('HDEL', KEYS[3], cjson.decode(raw).submission)
redis.call('SADD', KEYS[5], ARGV[1])
redis.call('XADD', KEYS[6], '*', 'type', 'deleted', 'run', ARGV[1])
return {'deleted'}
"""
)

READY = (
    FENCED
    + """
-- KEYS schema fence events; ARGV fence schema
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('XADD', KEYS[3], '*', 'type', 'taken_over')
return {'ready'}
"""
)


@dataclass(frozen=True)
class RunRegistry:
    """Submits, lists, cancels and deletes runs; `RunStore` starts and ends a run.

    Args:
        redis: the connection to Redis.
        keys: the keys of the registry.
        audit: the log of operators' actions.
    """

    redis: RedisAccess
    keys: FederationKeys
    audit: AuditLog

    # -- submissions ---------------------------------------------------------------------------

    async def submit(
        self,
        experiment: Experiment,
        submission: str,
        by: Attribution,
        name: str | None = None,
        wait_until: float | None = None,
    ) -> tuple[RunInfo, bool]:
        """Appends a run to the queue, unless a run with this submission key exists.

        Args:
            experiment: the checked experiment.
            submission: the key of the submission.
            by: the operator that submits the experiment, with the reason and the time.
            name: first part of the run's id; by default, the experiment's name.
            wait_until: Unix time at which the run is cancelled if no round has opened; None for no
                limit.
        Returns:
            The run, and whether this call submitted it.
        """
        name = name or experiment.name[:LONGEST_NAME]
        while True:
            number = int(await self.redis.ask("get", self.keys.run_counter) or 0) + 1
            run, digest = f"{name}-{number}", experiment.digest()
            info = RunInfo(
                run=run,
                name=name,
                experiment=digest,
                submission=submission,
                submitted_at=by.time,
                submitted_by=by.actor,
                wait_until=wait_until,
                rounds=experiment.rounds,
            )
            keys = (self.keys.submissions, self.keys.runs, self.keys.queue, self.keys.run_counter)
            answer = await self.audit.perform(
                Act("submit", by, run, {"experiment": digest}),
                SUBMIT,
                (*keys, self.keys.of_run(run).state, self.keys.events),
                submission,
                run,
                number,
                info.model_dump_json(),
                experiment.model_dump_json(),
            )
            if answer[0] == "submitted":
                return info, True
            known = await self.entry(answer[1]) if answer[0] == "known" else None
            if known is not None:
                return known, False

    async def submission_count(self) -> int:
        """The number of runs ever submitted."""
        return int(await self.redis.ask("get", self.keys.run_counter) or 0)

    # -- reading -------------------------------------------------------------------------------

    async def entry(self, run: str) -> RunInfo | None:
        """A run's entry; None if there is no such run."""
        raw = await self.redis.ask("hget", self.keys.runs, run)
        return None if raw is None else read_model(RunInfo, raw)

    async def entries(self) -> list[RunInfo]:
        """All runs, in the order of submission."""
        raw = await self.redis.ask("hvals", self.keys.runs)
        return sorted(
            (read_model(RunInfo, text) for text in raw), key=lambda info: number_of(info.run)
        )

    async def queue(self) -> list[str]:
        """The queued runs, in the order of execution."""
        return cast(list[str], await self.redis.ask("lrange", self.keys.queue, 0, -1))

    async def current(self) -> str | None:
        """The current run; None if no run is being executed."""
        return cast(str | None, await self.redis.ask("get", self.keys.current))

    async def experiment(self, run: str) -> Experiment:
        """The experiment of a run, whether or not the run has started."""
        raw = await self.redis.ask("hget", self.keys.of_run(run).state, "experiment")
        return Experiment.from_tables(json.loads(raw))

    # -- cancellation and deletion -------------------------------------------------------------

    async def cancel(self, run: str, by: Attribution) -> str:
        """Cancels a queued run.

        Returns:
            "cancelled", "unknown" (there is no such run), or the run's state if it is not queued.
        """
        keys = (self.keys.runs, self.keys.queue, self.keys.events)
        act = Act("cancel", by, run)
        answer = await self.audit.perform(act, AUDITED + CANCEL, keys, run, by.time, by.reason)
        return answer[0]

    async def drop(self, fence: int, run: str, now: float, state: str, reason: str) -> None:
        """Removes a run from the queue, because it could not start or waited for too long."""
        keys = (self.keys.runs, self.keys.queue, self.keys.events, self.keys.fence)
        await self.redis.run(FAIL_QUEUED, keys, fence, run, now, reason, state)

    async def delete(self, run: str, by: Attribution) -> str:
        """Deletes a run; soon afterwards, a worker removes the run's keys and blobs.

        Returns:
            "deleted", "unknown" (there is no such run), or "current" (the run is being executed).
        """
        keys = self.keys
        names = (keys.runs, keys.queue, keys.submissions, keys.current, keys.deleted, keys.events)
        return (await self.audit.perform(Act("delete", by, run), DELETE, names, run))[0]

    async def deleted_runs(self) -> list[str]:
        """The deleted runs whose keys and blobs are still to be removed."""
        return sorted(await self.redis.ask("smembers", self.keys.deleted))

    async def forget(self, run: str) -> None:
        """Removes the keys of a deleted run, after its blobs were removed."""
        names = await self.redis.keys(self.keys.of_run(run).prefix + "*")
        for start in range(0, len(names), 1000):
            await self.redis.ask("unlink", *names[start : start + 1000])
        await self.redis.ask("srem", self.keys.deleted, run)

    # -- the federation ------------------------------------------------------------------------

    async def set_ready(self, fence: int) -> None:
        """Records that the federation has a worker, and that Redis has the current schema."""
        keys = (self.keys.schema, self.keys.fence, self.keys.events)
        await self.redis.run(READY, keys, fence, SCHEMA)

    async def schema(self) -> str | None:
        """The schema of the stored state; None until a worker has taken over the federation.

        Raises:
            ConfigurationError: this version can neither read nor convert the state.
        """
        schema: str | None = await self.redis.ask("get", self.keys.schema)
        # Schemas 1 and 2 stored their version in the hash `federation`.
        schema = schema or await self.redis.ask("hget", f"{self.keys.prefix}federation", "schema")
        if schema not in (None, SCHEMA, *MIGRATED):
            raise ConfigurationError(
                f"Redis holds schema {schema}; this version reads {SCHEMA} and converts "
                f"{' and '.join(MIGRATED)}: use the version of Rampart that wrote this state"
            )
        return schema


def number_of(run: str) -> int:
    """The number of a run, which is the last part of its id.

    >>> number_of("digits-benign-12")
    12
    """
    return int(run.rpartition("-")[2])
