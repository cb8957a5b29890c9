"""Commands for join tokens, and for the labels and tokens of enrolled clients."""

from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import (
    PATIENCE,
    Ca,
    Json,
    Reason,
    Token,
    Url,
    connect,
    say,
)
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.shared.protocol.reasons import NO_REASON

Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="Label of the clients, such as site=eu; may be repeated."),
]


def tokens(
    context: typer.Context,
    count: Annotated[int, typer.Option(min=1, help="Number of tokens.")] = 1,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", help="Id of the client that may use the token; repeat for several tokens."
        ),
    ] = None,
    sample_cap: Annotated[
        int | None, typer.Option(min=1, help="Maximum sample count that a client may claim.")
    ] = None,
    lifetime: Annotated[
        float, typer.Option(min=1, help="Seconds until the tokens expire.")
    ] = 86_400,
    revoke: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Revoke this join token; make no tokens.")
    ] = None,
    label: Labels = None,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Makes join tokens, and prints one per line. Each token lets one client join.

    Without `--id`, clients get random ids.
    """
    if revoke is not None:
        options = ("count", "ids", "sample_cap", "lifetime", "label")
        refuse_unused(context, "--revoke makes no tokens", *options)
    if ids:
        refuse_unused(context, "--id makes one token for each id", "count")
    operator = connect(url, token, ca, PATIENCE)
    if revoke is not None:
        operator.revoke_join_token(revoke, reason)
        say(as_json, {"revoked": True}, "the join token is no longer valid")
        return
    if ids:
        made = operator.mint(ids, lifetime, reason, _labels(label), sample_cap)
    else:
        made = operator.mint_unbound(count, lifetime, reason, _labels(label), sample_cap)
    say(as_json, made.model_dump(mode="json"), "\n".join(made.tokens))


def label(
    client: str,
    labels: Annotated[list[str] | None, typer.Argument(help="Labels as KEY=VALUE.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all labels.")] = False,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Replaces a client's labels; later runs use labels to select their clients."""
    if bool(labels) == clear:
        raise typer.BadParameter("give either labels as KEY=VALUE, or --clear to remove all")
    info = connect(url, token, ca).label(client, _labels(labels), reason)
    text = " ".join(f"{key}={value}" for key, value in sorted(info.labels.items()))
    say(as_json, info.model_dump(mode="json"), f"{client} {text or 'has no labels'}")


def revoke(
    client: str,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Revokes a client's token at once, for example after a leak. Does not evict the client."""
    connect(url, token, ca).revoke(client, reason)
    text = f"the token of {client} is no longer valid"
    say(as_json, {"client_id": client, "revoked": True}, text)


def _labels(texts: list[str] | None) -> dict[str, str]:
    """Parses labels of the form KEY=VALUE."""
    pairs = [text.partition("=") for text in texts or []]
    if wrong := [key for key, sign, _ in pairs if not sign]:
        raise typer.BadParameter(f"{wrong[0]!r} is not a label; write it as KEY=VALUE")
    return {key: value for key, _, value in pairs}
