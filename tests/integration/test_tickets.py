"""A ticket over HTTP: as JSON, as the header of the model that it names, or after an upload."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from rampart_fl.shared.experiment.selection import select
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt, Ticket
from tests.integration.in_process_federation import (
    FEDCAP,
    Hold,
    Hosted,
    experiment,
    until,
    upload_of,
)

NAMES = ["ada", "bob", "cleo"]
Host = Callable[..., Hosted]


def first_ticket(hosted: Hosted, name: str) -> tuple[dict[str, str], httpx.Response]:
    """A client's authorization; and its first ticket with a model, once it has accepted the run."""
    bearer = {"Authorization": f"Bearer {hosted.accept(name).token}"}
    preferences = {**bearer, "Prefer": "wait=30", "Accept": wire.MEDIA_TYPE}
    first = httpx.get(f"{hosted.url}/v1/ticket", headers=preferences, timeout=60)
    while wire.TICKET_HEADER not in first.headers:  # Told to wait until all have accepted.
        known = {"If-None-Match": first.headers["etag"]}
        answer = httpx.get(f"{hosted.url}/v1/ticket", headers={**preferences, **known}, timeout=60)
        first = first if answer.status_code == 204 else answer
    return bearer, first


def test_ticket_includes_its_model_if_the_client_accepts_and_lacks_it(host: Host) -> None:
    hosted, hold = host(experiment(3, server=FEDCAP)), Hold(1)
    hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 1)
    bearer = {"Authorization": f"Bearer {hosted.join('ada').token}"}

    def get(path: str, **headers: str) -> httpx.Response:
        answer = httpx.get(hosted.url + path, headers={**bearer, **headers}, timeout=30)
        assert answer.status_code == 200
        return answer

    plain = get("/v1/ticket")
    ticket = Ticket.model_validate_json(plain.content)
    assert (ticket.round, ticket.kind) == (1, "train")
    digest = ticket.models["model"]

    along = get("/v1/ticket", Accept=wire.MEDIA_TYPE)
    assert along.headers["content-type"] == wire.MEDIA_TYPE
    assert along.headers["etag"] == plain.headers["etag"] == f'"{ticket.etag}"'
    assert Ticket.model_validate_json(along.headers[wire.TICKET_HEADER]) == ticket
    assert along.content == get(f"/v1/runs/{hosted.run.id}/models/{digest}").content

    other = get("/v1/ticket", **{"Accept": wire.MEDIA_TYPE, "Rampart-Model": "0" * 64})
    assert other.content == along.content
    held = get("/v1/ticket", **{"Accept": wire.MEDIA_TYPE, "Rampart-Model": digest})
    assert Ticket.model_validate_json(held.content) == ticket

    hold.on = False
    hosted.wait()
    done = get(f"/v1/ticket?run={hosted.run.id}", Accept=wire.MEDIA_TYPE)
    assert Ticket.model_validate_json(done.content).kind == "done"


def test_an_upload_may_wait_for_the_next_ticket_and_its_model(host: Host) -> None:
    hosted, hold = host(experiment(3, server=FEDCAP)), Hold(1)
    hosted.scripted(NAMES[:2], hold=hold)
    bearer, first = first_ticket(hosted, "cleo")
    update = upload_of(first.content)

    def put(round_: int, patience: int) -> tuple[Receipt, httpx.Response]:
        preferences = {"Accept": wire.MEDIA_TYPE, "Prefer": f"wait={patience}"}
        headers = {**bearer, **preferences, "Content-Type": wire.MEDIA_TYPE}
        url = f"{hosted.url}/v1/runs/{hosted.run.id}/rounds/{round_}/update"
        answer = httpx.put(url, content=update, headers=headers, timeout=60)
        assert answer.status_code == 200
        text = answer.headers.get(wire.RECEIPT_HEADER) or answer.content
        return Receipt.model_validate_json(text), answer

    receipt, answer = put(0, 30)
    assert (receipt.client, receipt.round, receipt.size) == ("cleo", 0, len(update))
    ticket = Ticket.model_validate_json(answer.headers[wire.TICKET_HEADER])
    assert (ticket.round, ticket.kind) == (1, "train")
    assert answer.content == hosted.model(ticket.models["model"])
    again, answer = put(0, 30)
    assert again == receipt
    assert Ticket.model_validate_json(answer.headers[wire.TICKET_HEADER]) == ticket

    # The other clients are held back: no ticket follows, and the answer is only the receipt.
    receipt, answer = put(1, 1)
    assert (receipt.round, wire.RECEIPT_HEADER in answer.headers) == (1, False)
    hosted.received("cleo")
    hold.on = False


def test_upload_keeps_waiting_through_a_round_without_its_client(host: Host) -> None:
    def drawn(seed: int, round_: int) -> bool:
        return "cleo" in select(seed, round_, NAMES, 0.6)

    seed = next(seed for seed in range(100) if drawn(seed, 0) and not drawn(seed, 1))
    hosted, hold = host(experiment(3, seed=seed, fraction=0.6)), Hold(1)
    hosted.scripted(NAMES[:2], hold=hold)
    bearer, first = first_ticket(hosted, "cleo")
    bearer |= {"Prefer": "wait=60", "Accept": wire.MEDIA_TYPE}
    with ThreadPoolExecutor(1) as thread:
        put = thread.submit(
            httpx.put,
            f"{hosted.url}/v1/runs/{hosted.run.id}/rounds/0/update",
            content=upload_of(first.content),
            headers={**bearer, "Content-Type": wire.MEDIA_TYPE},
            timeout=90,
        )
        hosted.wait("collecting", 1)
        assert not put.done()
        hold.on = False
        answer = put.result()
    assert Receipt.model_validate_json(answer.headers[wire.RECEIPT_HEADER]).client == "cleo"
    ticket = Ticket.model_validate_json(answer.headers.get(wire.TICKET_HEADER) or answer.content)
    assert ticket.kind != "wait", "only a ticket that asks for something ends the wait"


def test_stale_buffered_upload_gets_the_next_ticket(
    host: Host,
) -> None:
    hosted, hold = host(experiment(3, rounds=9, policy="buffered", buffer=2)), Hold(3)
    hosted.scripted(NAMES[:2], hold=hold)
    bearer, first = first_ticket(hosted, "cleo")
    preferences = {**bearer, "Accept": wire.MEDIA_TYPE, "Prefer": "wait=30"}
    hosted.wait("collecting", 3)
    with ThreadPoolExecutor(1) as thread:
        put = thread.submit(
            httpx.put,
            f"{hosted.url}/v1/runs/{hosted.run.id}/rounds/0/update",
            content=upload_of(first.content),
            headers={**preferences, "Content-Type": wire.MEDIA_TYPE},
            timeout=60,
        )
        until(
            lambda: put.done() or "cleo" not in hosted.of_run(lambda run: run.tickets.outstanding())
        )
        hold.on = False
        answer = put.result()
    assert Receipt.model_validate_json(answer.headers[wire.RECEIPT_HEADER]).closing_round == 3
    ticket = Ticket.model_validate_json(answer.headers[wire.TICKET_HEADER])
    assert ticket.kind == "train" and ticket.round > 3
