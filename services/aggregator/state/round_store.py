"""The federation's state in Redis; every transition is one atomic script (see scripts.py)."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import redis.asyncio

from rampart_fl.services.aggregator.state import operator_scripts, scripts
from rampart_fl.services.aggregator.state.batcher import RequestBatcher
from rampart_fl.services.aggregator.state.redis_records import SCHEMA
from rampart_fl.services.aggregator.state.round_reads import RoundReads
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord, Ticket

KEPT = 86_400
"""Seconds for which the receipts of a closed round are kept to answer repeated uploads."""


class RoundStore(RoundReads):
    """The transitions of the worker, which need its fencing token, and those of the API."""

    def __init__(self, client: "redis.asyncio.Redis", namespace: str) -> None:
        super().__init__(client, namespace)
        self._accepting = RequestBatcher(self._accept)

    async def end(self) -> None:
        """Cancels pending queries and uploads; to be called before the connection is closed."""
        await super().end()
        await self._accepting.close()

    # -- the worker's lease ------------------------------------------------------------------

    async def acquire(self, worker: str, ttl: float, now: float, own: bool = True) -> int | None:
        """Takes the lease; returns its fencing token, or None while another worker holds it.

        The time during which no worker held the lease is added to the deadline of an open round.

        Args:
            worker: name of the worker.
            ttl: seconds for which the lease lasts.
            now: Unix time.
            own: whether the worker may take over an existing lease that has its name.
        """
        answer = await self.run(
            scripts.ACQUIRE,
            ("lease", "fence", "federation"),
            worker,
            int(ttl * 1000),
            now,
            int(own),
        )
        return int(answer[1]) if answer[0] == "acquired" else None

    async def renew(self, worker: str, fence: int, ttl: float, now: float) -> None:
        """Extends the lease; raises `Fenced` if it was lost."""
        await self.run(
            scripts.RENEW, ("lease", "fence", "federation"), worker, fence, int(ttl * 1000), now
        )

    async def release(self, worker: str, fence: int) -> None:
        """Releases the lease, so that a standby worker can take it at once."""
        await self.run(scripts.RELEASE, ("lease", "fence"), worker, fence)

    # -- the worker's transitions ------------------------------------------------------------

    async def found(self, fence: int, digest: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Writes a new federation, unless there is one already.

        Returns:
            ("founded", digest); or ("same" | "other", the digest of the existing federation).
        """
        answer = await self.run(
            scripts.FOUND,
            ("federation", "fence", "events"),
            fence,
            digest,
            json.dumps({**fields, "schema": SCHEMA, "digest": digest}),
        )
        return answer[0], answer[1] if len(answer) > 1 else digest

    async def open(
        self,
        fence: int,
        round_: int,
        phase: str,
        now: float,
        deadline: float | None,
        tickets: Mapping[str, Ticket],
        selected: Sequence[str],
        clear: bool = True,
    ) -> None:
        """Opens a round or the evaluation with these tickets.

        Opening a round also ends the quarantines that are due.
        """
        await self.run(
            scripts.OPEN,
            (
                *("federation", "tickets", "fence", "events", "evicted", "pulls"),
                *("quarantined", "clients"),
            ),
            fence,
            round_,
            phase,
            now,
            "" if deadline is None else deadline,
            int(clear),
            json.dumps({client: t.model_dump_json() for client, t in tickets.items()}),
            json.dumps(list(selected)),
        )

    async def grant(self, fence: int, client: str, ticket: Ticket) -> None:
        """Gives one client a ticket while the round is open."""
        await self.run(
            scripts.GRANT,
            (
                *("tickets", "pulls", "fence", "events", "evicted"),
                *(f"receipts:{ticket.round}", "quarantined"),
            ),
            fence,
            client,
            ticket.model_dump_json(),
        )

    async def close(self, fence: int, round_: int, position: str) -> None:
        """Ends the collection of a round; `position` is that of the round's last event."""
        keys = ("federation", "fence", "events")
        await self.run(scripts.CLOSE, keys, fence, round_, position)

    async def publish(
        self,
        fence: int,
        record: RoundRecord,
        evictions: Mapping[str, Mapping[str, Any]],
        snapshot: Mapping[str, Any],
        position: str,
        quarantines: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        abstained: Sequence[str] = (),
    ) -> None:
        """Publishes a round's record, the clients that it bars and its snapshot, atomically."""
        keys = ("federation", "history", "evicted", "fence", "events", f"receipts:{record.round}")
        await self.run(
            scripts.PUBLISH,
            (*keys, "tickets", "pulls", "quarantined"),
            fence,
            record.round,
            record.status,
            record.model_dump_json(),
            json.dumps({client: json.dumps(why) for client, why in evictions.items()}),
            json.dumps(snapshot),
            position,
            KEPT,
            json.dumps({client: json.dumps(why) for client, why in quarantines.items()}),
            json.dumps(list(abstained)),
        )

    async def finish(self, fence: int) -> None:
        """Ends the federation."""
        await self.run(scripts.FINISH, ("federation", "fence", "events", "tickets"), fence)

    async def answer_customize(self, fence: int, request: str, digest: str) -> None:
        """Tells the API which model was made for a request."""
        keys = (f"customized:{request}", "fence", "events")
        await self.run(scripts.CUSTOMIZED, keys, fence, request, digest)

    # -- the API's transitions ---------------------------------------------------------------

    async def join(
        self,
        join_hash: str,
        token_hash: str,
        wished: str | None,
        fresh: str,
        now: float,
        expires: float,
        sample_cap: int,
    ) -> tuple[str, str, dict[str, Any]]:
        """Registers a client that presents a join token; repeating the call is idempotent.

        Args:
            join_hash: hash of the join token.
            token_hash: hash of the client's own token.
            wished: the id that the client asks for, if any.
            fresh: the id to use if neither the join token nor the client names one.
            now: Unix time.
            expires: Unix time at which the client's token expires.
            sample_cap: samples that the client may claim, unless the join token has another cap.
        Returns:
            ("joined", id, client), or (reason, id or "", {}). The reason is unknown, used, expired,
            taken (the id exists already) or token-taken.
        """
        answer = await self.run(
            scripts.JOIN,
            ("joins", "clients", "tokens", "events"),
            join_hash,
            now,
            wished or "",
            fresh,
            token_hash,
            expires,
            sample_cap,
        )
        client = json.loads(answer[2]) if len(answer) > 2 else {}
        return answer[0], answer[1] if len(answer) > 1 else "", client

    async def change_token(self, client: str, token_hash: str, expires: float) -> str:
        """Replaces a client's token, or revokes it if the hash is empty.

        Returns:
            "done", "unknown" (there is no such client) or "taken" (another client's token).
        """
        answer = await self.run(
            scripts.CHANGE, ("clients", "tokens", "events"), client, token_hash, expires
        )
        return answer[0]

    async def accept(self, receipt: Receipt) -> tuple[str, Receipt | None]:
        """Records an upload whose blob is stored; repeating the call is idempotent.

        Returns:
            ("accepted", the stored receipt), or (evicted | conflict | late | no-ticket, None).
        """
        return await self._accepting.ask(receipt)

    async def _accept(self, receipts: Sequence[Receipt]) -> list[tuple[str, Receipt | None]]:
        """Records a batch of uploads in one round trip and with one fsync of Redis."""
        answers = await self.run_all(
            scripts.ACCEPT,
            [
                (
                    ("federation", "tickets", f"receipts:{r.round}", "evicted", "events"),
                    (r.client, r.round, r.kind, r.digest, r.model_dump_json()),
                )
                for r in receipts
            ],
        )
        return [
            (answer, Receipt.model_validate_json(stands[0]) if stands else None)
            for answer, *stands in answers
        ]

    async def pull(self, client: str) -> None:
        """Asks the worker for a ticket (buffered policy); repeating the call is idempotent."""
        await self.run(
            scripts.PULL,
            ("federation", "tickets", "pulls", "evicted", "events", "quarantined"),
            client,
        )

    async def set_status(self, status: str) -> tuple[str, str]:
        """Sets the status to running, paused or stopping.

        Returns:
            ("done" | "over" | "unfounded", the current status; "" if unfounded).
        """
        answer = await self.run(operator_scripts.STATUS, ("federation", "events"), status)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def set_mode(self, mode: Mode, reason: str) -> tuple[str, str]:
        """Sets the mode of evictions from now on.

        Returns:
            ("done", the mode), ("over", the status) or ("unfounded", "").
        """
        answer = await self.run(operator_scripts.MODE, ("federation", "events"), mode, reason)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def evict(self, client: str, why: Mapping[str, Any]) -> str:
        """Evicts a client; returns "evicted", "already" or "unknown"."""
        keys = ("clients", "evicted", "tickets", "events", "pulls", "quarantined")
        return (await self.run(operator_scripts.EVICT, keys, client, json.dumps(why)))[0]

    async def reinstate(self, client: str, reason: str) -> str:
        """Undoes an eviction or a quarantine; returns "reinstated", "already" or "unknown"."""
        keys = ("clients", "evicted", "events", "quarantined")
        return (await self.run(operator_scripts.REINSTATE, keys, client, reason))[0]

    async def confirm(self, client: str, reason: str) -> str:
        """Evicts a client as proposed; returns "confirmed", or "gone" if there is no proposal."""
        raw, proposal = await self._proposal(client)
        why = {k: v for k, v in proposal.items() if k not in ("kind", "until")}
        stands = json.dumps({**why, "confirmed": reason})
        keys = ("quarantined", "evicted", "events")
        return (await self.run(operator_scripts.CONFIRM, keys, client, raw, stands, reason))[0]

    async def dismiss(self, client: str, reason: str) -> str:
        """Dismisses a proposal; returns "dismissed", or "gone" if there is no proposal."""
        raw, _ = await self._proposal(client)
        keys = ("quarantined", "events")
        return (await self.run(operator_scripts.DISMISS, keys, client, raw, reason))[0]

    async def _proposal(self, client: str) -> tuple[str, dict[str, Any]]:
        """The proposal to evict a client, as stored text and parsed; both empty if none exists."""
        raw = await self.ask("hget", self.key("quarantined"), client)
        found = {} if raw is None else json.loads(raw)
        return (raw, found) if found.get("kind") == "proposal" else ("", {})

    async def ask_customize(self, request: str, client: str, digest: str) -> None:
        """Asks the worker for a customized model for a client that sent an update for it."""
        fields = {"type": "customize", "request": request, "client": client, "digest": digest}
        await self.ask("xadd", self.key("events"), fields)
