"""The reasons to refuse a request: error classes, each with an HTTP status and a stable type."""

from rampart_fl.shared.errors import RampartError


class Refusal(RampartError):
    """A request violates the protocol; the answer is `application/problem+json`."""

    status = 400
    slug = "refused"
    title = "Refused"

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class Malformed(Refusal):
    status, slug, title = 400, "malformed", "The request cannot be decoded"


class Unauthorized(Refusal):
    status, slug, title = 401, "unauthorized", "No valid token"


class OperatorExpired(Refusal):
    status, slug, title = 401, "operator-expired", "This operator's token has expired"


class OperatorRevoked(Refusal):
    status, slug, title = 401, "operator-revoked", "This operator's token was revoked"


class Forbidden(Refusal):
    status, slug, title = 403, "forbidden", "This token does not permit the request"


class ReadOnly(Refusal):
    status, slug, title = 403, "read-only", "A viewer may only read"


class Evicted(Refusal):
    status, slug, title = 403, "evicted", "This client is barred from the run or the federation"


class NotMember(Refusal):
    status, slug, title = 403, "not-a-member", "This client does not take part in the run"


class NotFound(Refusal):
    status, slug, title = 404, "not-found", "The resource does not exist"


class RunNotFound(Refusal):
    status, slug, title = 404, "run-not-found", "There is no such run"


class MethodNotAllowed(Refusal):
    status, slug, title = 405, "method-not-allowed", "The resource does not support this method"


class SlowHead(Refusal):
    status, slug, title = 408, "slow-head", "The headers arrived too slowly"


class SlowBody(Refusal):
    status, slug, title = 408, "slow-body", "The body arrived too slowly"


class Conflict(Refusal):
    status, slug, title = 409, "conflict", "The current state does not allow the request"


class NotStarted(Refusal):
    status, slug, title = 409, "not-started", "The run has not started"


class RunOver(Refusal):
    status, slug, title = 409, "run-over", "The run has ended, or is ending"


class RunCurrent(Refusal):
    status, slug, title = 409, "run-current", "The run is being executed"


class RunFull(Refusal):
    status, slug, title = 409, "run-full", "All slots of the run are taken"


class NoTicket(Refusal):
    status, slug, title = 409, "no-ticket", "The client has no ticket for this upload"


class Late(Refusal):
    status, slug, title = 410, "late", "The round is closed"


class LengthRequired(Refusal):
    status, slug, title = 411, "length-required", "The length of the body must be given"


class TooLarge(Refusal):
    status, slug, title = 413, "too-large", "The body is too large"


class UnsupportedMedia(Refusal):
    status, slug, title = 415, "unsupported-media", "Unknown content type or encoding"


class InvalidUpdate(Refusal):
    status, slug, title = 422, "invalid-update", "The update does not fit the model"


class NotFinite(Refusal):
    status, slug, title = 422, "not-finite", "The update has a NaN or an infinity"


class InvalidClaim(Refusal):
    status, slug, title = 422, "invalid-claim", "A report is missing, malformed or impossible"


class InvalidExperiment(Refusal):
    status, slug, title = 422, "invalid-experiment", "The experiment cannot be run"


class InvalidRequest(Refusal):
    status, slug, title = 422, "invalid-request", "The request does not fit the schema"


class TooMany(Refusal):
    status, slug, title = 429, "too-many-requests", "Too many requests"


class HeadTooLarge(Refusal):
    status, slug, title = 431, "head-too-large", "The headers are too large"
