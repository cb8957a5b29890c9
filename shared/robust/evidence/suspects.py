"""Challenges for the clients that the detector `response` suspects or spot-checks.

Legend: L suspects, J decoys, B blocks of coordinates, M rows of the pool, K numbers of a sketch, D
coordinates.
"""

from collections.abc import Collection, Mapping
from statistics import median

from torch import Tensor

from rampart_fl.shared.robust.base import Context, Rows
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.evidence import challenges
from rampart_fl.shared.robust.evidence.client_memory import CALM, ClientMemory, DueChallenge
from rampart_fl.shared.robust.evidence.objections import CohortLimits, Upload, undoes_challenge
from rampart_fl.shared.robust.sketch import sketch

BLOCKS = 32
"""Number of blocks of coordinates; a challenge has its own random weights in each block."""
BOLDER = 2.0
"""Factor by which the norm of a suspect's challenge grows after an upload that does not clearly
undo the challenge."""
BOLDEST = 8.0
"""Largest norm of a suspect's challenge, as a multiple of the norm of a first challenge."""
SHORTEST = 1 / 32
"""Smallest norm of a suspect's challenge, as a multiple of the norm of a first challenge. Only
uploads that were too long can reduce the norm below that of a first challenge."""
OUTSTANDING = 8
"""Number of rounds for which a challenge stays due under the buffered policy. If a suspect's upload
arrives later, the detector treats the upload as if the suspect had not been challenged."""


def next_boldness(
    boldness: float, calm: int, clear: bool, far: bool, suspected: bool = True
) -> tuple[float, int]:
    """The norm of a client's next challenge (`boldness`), and the next value of `calm`.

    After an upload that was too long, challenges grow again only after `CALM` further uploads.
    For some clients, training diverges after every challenge above a certain norm. Because of the
    wait of `CALM` uploads, at most one in seven uploads of such a client is too long in the long
    run.

    Args:
        boldness: norm of the previous challenge, as a multiple of the norm of a first challenge.
        calm: number of uploads between the latest upload that was too long and this upload.
        clear: whether the client's answer to its challenge is clear.
        far: True if the norm of this upload is above the limit, and also above the norm of each of
            the client's uploads that did not start from a challenged model.
        suspected: whether the client is a suspect. Other clients are probably honest, so the norms
            of their challenges do not grow.

    >>> next_boldness(2.0, CALM, clear=False, far=False)
    (4.0, 7)
    >>> next_boldness(6.0, CALM, clear=True, far=False)
    (3.0, 7)
    >>> next_boldness(6.0, CALM, clear=False, far=True)
    (3.0, 0)
    >>> next_boldness(3.0, 0, clear=False, far=False)
    (3.0, 1)
    >>> next_boldness(1.0, CALM, clear=False, far=False, suspected=False)
    (1.0, 7)
    """
    if far:
        return max(SHORTEST, boldness / 2), 0
    calm += 1
    wanted = max(1.0, boldness / 2) if clear else BOLDER * boldness
    most = BOLDEST if suspected else 1.0
    return min(wanted, most if calm >= CALM else boldness), calm


def learn(one: ClientMemory, upload: Upload, usual: CohortLimits, suspected: bool) -> None:
    """Updates what decides on a client's next challenge, after an upload from a challenged model.

    Args:
        one: what is remembered about the client.
        upload: the upload.
        usual: the typical values and limits with which the upload is compared.
        suspected: whether the client was a suspect before this upload.
    """
    clear = undoes_challenge(upload, usual)
    low = upload.answer is not None and upload.answer.chance <= usual.chance
    far = upload.times > max(usual.most, usual.times(one.longest))
    one.checks.answered(clear, low)
    one.boldness, one.calm = next_boldness(one.boldness, one.calm, clear, far, suspected)


def expire(known: Mapping[str, ClientMemory], round_: int, outstanding: int) -> None:
    """Drops challenges that are too old, and all challenges of clients that are not suspects.

    Args:
        known: what is remembered about each client, keyed by client id.
        round_: number of the round whose uploads the detector has just judged.
        outstanding: number of rounds for which a suspect's challenge stays due. If this number is
            0, a challenge is due only in the round after it was drawn.
    """
    for one in known.values():
        kept = one.due if one.suspected else ()
        one.due = tuple(due for due in kept if due.round > round_ - outstanding)


def challenge(
    known: Mapping[str, ClientMemory],
    rows: Rows,
    customization: Customization,
    global_D: Tensor,
    name: str,
    context: Context,
    strength: float,
    decoys: int,
    size: int,
    checked: Collection[str] = (),
) -> Customization:
    """Challenges suspects and spot-checked clients; awaits these clients and all doubtful clients.

    If another detector has already challenged a client, the client keeps this challenge. The
    function stores the new challenges in `known`. Nobody is challenged if there are too few rows to
    draw challenges from, or if all rows are equal.

    Args:
        known: what is remembered about each client, keyed by client id.
        rows: the rows of the accepted clients; the challenges combine these rows.
        customization: which client gets which model.
        global_D: the next global model.
        name: the detector's name, which the names of its random draws contain.
        context: the current round and the seed.
        strength: norm of a first challenge, as a multiple of the median norm of the clients' latest
            uploads without a challenge.
        decoys: J, the number of decoys.
        size: K, the size of sketches.
        checked: the clients that are spot-checked.
    """
    doubtful = [client for client, one in known.items() if one.doubtful]
    customization = challenges.awaiting(customization, doubtful)
    asked = sorted({*checked, *(client for client in doubtful if known[client].suspected)})
    lengths = [one.length for one in known.values() if one.length]
    if not asked or not lengths or len(rows) < challenges.LEAST:
        return customization
    pool_BMK = challenges.sketches(rows, BLOCKS, size, context.seed)
    length = strength * median(lengths)
    decoys_JBM = challenges.draw(pool_BMK, length, decoys, context.generator(name, "decoys"))
    if not bool(decoys_JBM.any()):
        return customization
    drawn = {
        client: challenges.draw(
            pool_BMK,
            length * known[client].boldness,
            1,
            context.generator(name, "challenge", client),
        )[0]
        for client in asked
        if client not in customization.challenged
    }
    customization = challenges.awaiting(customization, asked)
    customization = challenges.challenged(customization, global_D, rows, drawn)
    own = challenges.OwnModels(customization, global_D, size, context.seed, rows.place)
    decoys_JK = challenges.changes(decoys_JBM, pool_BMK)
    for client in asked:
        own_K = own.sketch(client)
        if client in drawn:  # Sketches are linear, so add the sketches of model and challenge.
            start_K = own_K + challenges.changes(drawn[client][None], pool_BMK)[0]
        else:
            challenged_D = challenges.challenged_model(customization, client)
            start_K = sketch(challenged_D, size, context.seed, rows.place).double()
        known[client].due += (DueChallenge(context.round, start_K, start_K - own_K, decoys_JK),)
    return customization
