"""Runs Redis commands and atomic scripts; if required, waits until replicas confirm writes.

Every script returns a list whose first element says what happened. The worker passes its fencing
token to all of its scripts, with one exception: the script that acquires a lease makes a new token.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import redis.asyncio
from redis.exceptions import NoScriptError, RedisError, ResponseError

from rampart_fl.services.aggregator.state.redis_connection import PATIENCE
from rampart_fl.shared.errors import RampartError, Unavailable

REPLICATING = 5.0
"""Timeout in seconds for the replicas' confirmation of a write."""
Call = tuple[Sequence[str], Sequence[str | int | float]]
"""Names of the keys that a script works on, and the script's arguments."""


FENCED = """
local function fenced(key, token)
  return redis.call('GET', key) ~= token
end
"""
"""Each script that checks the worker's fencing token begins with this Lua code. The function
`fenced` returns whether the token is outdated."""
READ = """
-- KEYS one key for each command; ARGV for each command, its name and its further arguments as JSON
local answers = {}
for n, key in ipairs(KEYS) do
  local command = cjson.decode(ARGV[n])
  answers[n] = redis.call(command[1], key, unpack(command, 2))
end
return answers
"""


class LeaseLost(RampartError):
    """This worker has lost the lease, so its write was not carried out."""

    slug = "fenced"
    title = "This worker does not hold the lease"


@asynccontextmanager
async def converted_errors() -> AsyncIterator[None]:
    """Converts errors and timeouts of Redis to `Unavailable`."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except (RedisError, OSError) as error:
        raise Unavailable(f"Redis: {str(error) or 'no answer'}") from error


class RedisAccess:
    """Runs commands and scripts.

    Args:
        client: a Redis client made by `connect`.
        replicas: number of replicas that must confirm the writes of a script. If this number is at
            least 1, a failover to the most up-to-date replica loses no confirmed write.
    """

    def __init__(self, client: "redis.asyncio.Redis", replicas: int = 0) -> None:
        self.client = client
        self.replicas = replicas

    async def run(self, script: str, keys: Sequence[str], *args: str | int | float) -> list[str]:
        """Runs an atomic script; returns its result.

        Raises:
            LeaseLost: the worker has lost the lease, so the script did nothing.
            Unavailable: Redis did not respond, or too few replicas confirmed the writes. The script
                may have run in spite of the error, so scripts must be idempotent.
        """
        (answer,) = await self.run_all(script, [(keys, args)])
        if answer[0] == "fenced":
            raise LeaseLost("the lease has expired or passed to another worker")
        return answer

    async def run_all(self, script: str, calls: Sequence[Call]) -> list[list[str]]:
        """Calls an atomic script several times in one round trip; returns all results."""
        sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        answers: list[Any] = [NoScriptError()] * len(calls)
        async with converted_errors():
            while missing := [n for n, a in enumerate(answers) if isinstance(a, NoScriptError)]:
                async with self.client.pipeline(transaction=False) as pipe:
                    for keys, args in (calls[n] for n in missing):
                        pipe.evalsha(sha, len(keys), *keys, *args)
                    if self.replicas:
                        # WAIT applies only to writes of its own connection. It is therefore sent in
                        # the same pipeline as the scripts.
                        pipe.wait(self.replicas, round(REPLICATING * 1000))
                    replies = await pipe.execute(raise_on_error=False)
                if self.replicas:
                    self._check_replicas(replies.pop())
                for n, answer in zip(missing, replies, strict=True):
                    answers[n] = answer
                if any(isinstance(answer, NoScriptError) for answer in replies):
                    await self.client.script_load(script)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return cast(list[list[str]], answers)

    async def ask(self, command: str, *args: Any, **options: Any) -> Any:
        """Runs a plain command; returns its result."""
        async with converted_errors():
            return await getattr(self.client, command)(*args, **options)

    async def time(self) -> float:
        """The Unix time of Redis' clock, on which all processes of a federation agree."""
        return unix_time(await self.ask("time"))

    async def read(self, *commands: tuple[str, ...]) -> list[Any]:
        """Runs commands that only read, in one atomic step; returns their results.

        The method uses a script, and not a transaction. When Redis has reached its memory limit, it
        refuses the commands of a transaction, but a script may still read.

        Args:
            commands: each consists of the command's name, one key, and further arguments. The
                result of `HGETALL` is a flat list of fields and values.
        """
        keys = [key for _, key, *_ in commands]
        arguments = [json.dumps([name, *rest]) for name, _, *rest in commands]
        answers: list[Any] = await self.ask("eval", READ, len(keys), *keys, *arguments)
        return answers

    async def keys(self, pattern: str) -> list[str]:
        """The names of all keys that match a pattern; the pattern's only wildcard is `*`."""
        escaped, cursor, matches = pattern.replace("[", "\\[").replace("?", "\\?"), 0, set[str]()
        while True:
            cursor, names = await self.ask("scan", cursor, match=escaped, count=1000)
            matches.update(names)
            if not cursor:
                return sorted(matches)

    def _check_replicas(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            raise answer
        if answer < self.replicas:
            raise Unavailable(f"Redis: {answer} of {self.replicas} replicas confirmed a write")

    async def ping(self) -> None:
        """Raises `Unavailable` if Redis does not respond, or has too few replicas."""
        await self.ask("ping")
        if self.replicas:
            self._check_replicas(await self.ask("wait", self.replicas, round(REPLICATING * 1000)))

    async def durable(self) -> bool:
        """Whether Redis reports that it calls fsync after every write.

        If it does not, receipts are not durable.
        """
        try:
            config = await self.client.config_get("append*")
        except ResponseError:
            return False
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis: {error}") from error
        return config.get("appendonly") == "yes" and config.get("appendfsync") == "always"

    async def memory(self) -> tuple[int, int]:
        """The memory that Redis uses and its memory limit, in bytes.

        Both numbers are 0 if Redis does not report them: some providers forbid the command `INFO`.
        The limit is 0 if Redis has no limit.
        """
        try:
            memory = await self.client.info("memory")
        except ResponseError:
            return 0, 0
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis: {error}") from error
        return int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))


def unix_time(reply: tuple[int, int]) -> float:
    """Converts the answer to Redis' command `TIME` to a Unix time.

    >>> unix_time((1_000_000, 250_000))
    1000000.25
    """
    seconds, microseconds = reply
    return seconds + microseconds / 1e6


def hash_of(flat: Sequence[str]) -> dict[str, str]:
    """Converts a flat list of fields and values to a dictionary.

    `RedisAccess.read` returns a Redis hash as such a list.

    >>> hash_of(["ada", "1", "bob", "2"])
    {'ada': '1', 'bob': '2'}
    """
    return dict(zip(flat[::2], flat[1::2], strict=True))
