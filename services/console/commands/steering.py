"""Commands that pause, resume or end a run."""

from rampart_fl.services.console.commands.connection import (
    Ca,
    Json,
    Reason,
    Token,
    Url,
    Where,
    WhichRun,
    connect,
    say,
)
from rampart_fl.shared.protocol.reasons import NO_REASON


def pause(
    run: WhichRun = None,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Pauses a run: no further round opens until `resume`."""
    _steer("pause", run, reason, (url, token, ca), as_json)


def resume(
    run: WhichRun = None,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Resumes a run after `pause`."""
    _steer("resume", run, reason, (url, token, ca), as_json)


def stop(
    run: WhichRun = None,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Ends a run after clients have evaluated the final models; cancels a queued run."""
    _steer("stop", run, reason, (url, token, ca), as_json)


def _steer(verb: str, run: str | None, reason: str, where: Where, as_json: bool) -> None:
    status = connect(*where).run(run).steer(verb, reason)
    text = f"{status.run} is {status.state}, round {status.round}"
    say(as_json, status.model_dump(mode="json"), text)
