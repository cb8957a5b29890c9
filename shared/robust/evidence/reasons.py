"""Sentences that explain the verdicts of `response` and `challenge` to operators."""

from rampart_fl.shared.robust.evidence.client_memory import ClientMemory
from rampart_fl.shared.robust.evidence.objections import CohortLimits, Objection, Upload
from rampart_fl.shared.robust.evidence.responses import Response
from rampart_fl.shared.robust.evidence.sequential import SUSPECT
from rampart_fl.shared.robust.evidence.trials import TrialRecord


def reason(decision: str, one: ClientMemory, because: str, passive: bool, odds: str) -> str:
    """The verdict's reason in one sentence, with the measured quantity, its limit and its unit.

    Args:
        decision: the decision about the upload.
        one: what is remembered about the client.
        because: the text that `explain` returned for the upload.
        passive: True if the detector challenges no clients; suspicion then counts as evidence.
        odds: the bound on the probability of false evictions, as text.
    """
    evidence = one.suspicion if passive else one.evidence
    number, unit = (one.rounds, "round") if passive else (one.trials, "challenge")
    rounds = f"{number} {unit}{'s' * (number != 1)}"
    if decision == "evicted":
        return f"evidence {evidence:.3g} exceeds {one.limit:.3g} after {rounds} ({odds}); {because}"
    known = f"evidence {evidence:.3g} of {one.limit:.3g}"
    if passive:
        return f"{because}; {known}"
    doubt = f"suspicion {one.suspicion:.3g} of {SUSPECT:.3g}"
    if one.trials:
        doubt = f"{doubt}, {known} after {rounds}"
    return f"{because}; {'suspect: ' if one.suspected else ''}{doubt}"


def explain(upload: Upload, place: int, objection: Objection, usual: CohortLimits) -> str:
    """Explains in words why the detector objects to an upload, or why it does not.

    Args:
        upload: the upload.
        place: index of the response to explain; there is one response for each of the detector's
            memories.
        objection: the objection to the upload; "" if there is none.
        usual: the typical values and limits with which the upload was compared.
    """
    response = upload.responses[place]
    if upload.start == "refused":
        return "upload did not start from the model that challenges the client"
    length = (
        f"upload is {upload.times:.3g} times as long as the median client's longest, "
        f"above the limit of {usual.most:.3g}"
    )
    beyond = upload.times > usual.most
    if objection == "too long":
        return length
    if response is not None and objection == "turned":
        return _turning(upload, response, usual) + (f"; {length}" if beyond else "")
    if response is not None and objection == "overshoots":
        return (
            f"upload undoes the model's movement {response.strength:.3g} times, "
            f"above the limit of {usual.overshoot:g}"
        )
    if beyond:
        return f"{length}; this is no evidence, as the client may have far more data"
    pull = "" if response is None else f", response {response.correlation:.2f}"
    return f"upload is {upload.times:.3g} times the median client's longest{pull}: no objection"


def _turning(upload: Upload, response: Response, usual: CohortLimits) -> str:
    """Explains in words why a response points in the wrong direction ("turned")."""
    if upload.answer is None:
        return (
            f"response {response.correlation:.2f} to the model's movement is below "
            f"{usual.turned:.2g}: it pushes where others pull back"
        )
    return (
        f"answer {upload.answer.correlation:.2f} to its challenge is among the lowest "
        f"{usual.chance:.0%} of its answers to decoys: it pushes where training pulls back"
    )


def trial_reason(
    decision: str,
    one: TrialRecord,
    answer: tuple[float, float, float] | None,
    copied: bool,
    odds: str,
) -> str:
    """Explains a verdict of the detector `challenge` in one sentence.

    Args:
        decision: the decision about the upload.
        one: what is remembered about the client.
        answer: the client's answer, its lower limit, and the median answer of clients that are not
            on trial; None if the answer was not judged.
        copied: whether another client sent a similar upload in this round.
        odds: the bound on the probability of false evictions, as text.
    """
    if answer is None:
        why = "on trial: " if one.trial else ""
        why += "sent the same as another client" if copied else "sent no copy"
    else:
        own, least, usual = answer
        why = (
            f"answer to its own challenge {own:.2f} {'is below' if own < least else 'reaches'} "
            f"{least:.2f} standard deviations (median of others {usual:.2f})"
        )
    if one.relay_evidence > 0:
        why += (
            f"; uploads answer challenges of others that sent similar uploads "
            f"(evidence {one.relay_evidence:.3g} after {one.compared} rounds)"
        )
    if one.waited:
        waits = " waits for evidence on the other senders;" if decision == "rejected" else ""
        held = f"evidence {one.evidence:.3g} exceeds {one.limit:.3g}"
        if one.evidence <= one.limit:
            held = f"evidence {one.evidence:.3g} of {one.limit:.3g}, which it exceeded earlier,"
        return f"{held} after {one.rounds} rounds on trial ({odds});{waits} {why}"
    return f"{why}; evidence {one.evidence:.3g} of {one.limit:.3g}"
