"""The federation's state in Redis: every transition is one atomic script (see scripts.py)."""

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
"""Seconds for which receipts of closed rounds answer repeated uploads."""


class RoundStore(RoundReads):
    """The transitions: the worker's under its fence, and the API's."""

    def __init__(self, client: "redis.asyncio.Redis", namespace: str) -> None:
        super().__init__(client, namespace)
        self._accepting = RequestBatcher(self._accept)

    async def end(self) -> None:
        """Gives up what is still being asked, before the connection is closed."""
        await super().end()
        await self._accepting.close()

    # -- the worker's lease ------------------------------------------------------------------

    async def acquire(self, worker: str, ttl: float, now: float, own: bool = True) -> int | None:
        """The fencing token of a new lease, or None while another worker holds it.

        Time for which nobody held the lease is added to the deadline of an open round.

        Args:
            worker: name of the worker.
            ttl: seconds for which it holds the lease.
            now: Unix time.
            own: whether a lease that stands under this name is this worker's to take back.
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
        """Keeps the lease; `Fenced` if it is gone."""
        await self.run(
            scripts.RENEW, ("lease", "fence", "federation"), worker, fence, int(ttl * 1000), now
        )

    async def release(self, worker: str, fence: int) -> None:
        """Gives the lease back, so that a standby may take it at once."""
        await self.run(scripts.RELEASE, ("lease", "fence"), worker, fence)

    # -- the worker's transitions ------------------------------------------------------------

    async def found(self, fence: int, digest: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Writes a new federation; ("same" | "other", digest) if there is one already."""
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
        """Opens a round (or the evaluation) with these tickets; quarantines that are over end."""
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
        """Ends the collection of a round, whose last event stands at `position`."""
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
        """Makes a round's outcome the truth: record, who is barred, and pointers, at once."""
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
        """Registers a client against a join token; the same request again answers the same.

        Returns:
            ("joined", id, client), or (reason, id or "", {}) with reason unknown, used, expired,
            taken (the id) or token-taken.
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
        """Replaces a client's token, or revokes it (empty hash); "done", "unknown" or "taken"."""
        answer = await self.run(
            scripts.CHANGE, ("clients", "tokens", "events"), client, token_hash, expires
        )
        return answer[0]

    async def accept(self, receipt: Receipt) -> tuple[str, Receipt | None]:
        """Records an upload whose blob is stored, once.

        Returns:
            ("accepted", the receipt that stands), or (evicted | conflict | late | no-ticket, None).
        """
        return await self._accepting.ask(receipt)

    async def _accept(self, receipts: Sequence[Receipt]) -> list[tuple[str, Receipt | None]]:
        """Records uploads that came together in one round trip, and one fsync of Redis."""
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
        """Asks the worker for a ticket (buffered policy); asking twice asks once."""
        await self.run(
            scripts.PULL,
            ("federation", "tickets", "pulls", "evicted", "events", "quarantined"),
            client,
        )

    async def set_status(self, status: str) -> tuple[str, str]:
        """Running, paused or stopping; ("done" | "over" | "unfounded", the status that stands)."""
        answer = await self.run(operator_scripts.STATUS, ("federation", "events"), status)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def set_mode(self, mode: Mode, reason: str) -> tuple[str, str]:
        """The mode of evictions from now on; ("done" | "over" | "unfounded", mode or status)."""
        answer = await self.run(operator_scripts.MODE, ("federation", "events"), mode, reason)
        return answer[0], answer[1] if len(answer) > 1 else ""

    async def evict(self, client: str, why: Mapping[str, Any]) -> str:
        """Bars a client; "evicted", "already" or "unknown"."""
        keys = ("clients", "evicted", "tickets", "events", "pulls", "quarantined")
        return (await self.run(operator_scripts.EVICT, keys, client, json.dumps(why)))[0]

    async def reinstate(self, client: str, reason: str) -> str:
        """Takes an eviction or a quarantine back; "reinstated", "already" or "unknown"."""
        keys = ("clients", "evicted", "events", "quarantined")
        return (await self.run(operator_scripts.REINSTATE, keys, client, reason))[0]

    async def confirm(self, client: str, reason: str) -> str:
        """Evicts a client as proposed; "confirmed", or "gone" where no proposal stands."""
        raw, proposal = await self._proposal(client)
        why = {k: v for k, v in proposal.items() if k not in ("kind", "until")}
        stands = json.dumps({**why, "confirmed": reason})
        keys = ("quarantined", "evicted", "events")
        return (await self.run(operator_scripts.CONFIRM, keys, client, raw, stands, reason))[0]

    async def dismiss(self, client: str, reason: str) -> str:
        """Lets a client back that was proposed; "dismissed", or "gone" where it was not."""
        raw, _ = await self._proposal(client)
        keys = ("quarantined", "events")
        return (await self.run(operator_scripts.DISMISS, keys, client, raw, reason))[0]

    async def _proposal(self, client: str) -> tuple[str, dict[str, Any]]:
        """The proposal about a client, as it is stored and parsed; empty where there is none."""
        raw = await self.ask("hget", self.key("quarantined"), client)
        found = {} if raw is None else json.loads(raw)
        return (raw, found) if found.get("kind") == "proposal" else ("", {})

    async def ask_customize(self, request: str, client: str, digest: str) -> None:
        """Asks the worker for a model for a client that answered a probe out of turn."""
        fields = {"type": "customize", "request": request, "client": client, "digest": digest}
        await self.ask("xadd", self.key("events"), fields)
