"""What can go wrong on the way to a gateway and back, as one small tree."""

from typing import ClassVar


class RookholdError(Exception):
    """Root of every error this client raises on purpose; always raised as a subclass.

    `code` is for programs and is never renamed; the message is for people and may change.
    Neither ever holds a key, the job's code or its output.
    """

    code: str = "rookhold"
    retryable: bool = False


class ConfigurationError(RookholdError):
    """The client was given something it cannot use: a bad address, key, path or size."""

    code = "invalid_configuration"


class UnreachableError(RookholdError):
    """No complete answer came back: refused, dropped, or cut off in the middle."""

    code = "unreachable"
    retryable = True


class TimedOutError(UnreachableError):
    """The gateway did not answer within the time this call may take."""

    code = "timed_out"


class WaitExpiredError(RookholdError):
    """The job was still running when the caller's own waiting time was over."""

    code = "wait_expired"
    retryable = True


class ProtocolError(RookholdError):
    """The answer is not one a Rookhold gateway gives."""

    code = "unexpected_response"


class RedirectError(ProtocolError):
    """The answer was a redirect; it is never followed, so that a key goes nowhere else."""

    code = "unexpected_redirect"


class IntegrityError(ProtocolError):
    """The answer contradicts itself: a digest, a size or the order of events is wrong."""

    code = "integrity"


class ApiError(RookholdError):
    """The gateway refused, with its own stable `code`.

    `retry_after` is in seconds, None when the gateway named no time.
    """

    statuses: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        retryable: bool = False,
        request_id: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retryable = retryable
        self.request_id = request_id
        self.retry_after = retry_after


class InvalidRequestError(ApiError):
    """The request itself is wrong (400, 405, 408, 413, 415, 426)."""

    statuses = (400, 405, 408, 413, 415, 426)


class UnauthorizedError(ApiError):
    """The key is missing, malformed, unknown or no longer valid (401)."""

    statuses = (401,)


class ForbiddenError(ApiError):
    """The key is good but lacks the scope of this route (403)."""

    statuses = (403,)


class NotFoundError(ApiError):
    """Nothing is there, or the caller may not learn that it is (404)."""

    statuses = (404,)


class PolicyError(ApiError):
    """The request is well-formed but this gateway will not do it (409, 422)."""

    statuses = (409, 422)


class CapacityError(ApiError):
    """A limit of the tenant, of the server or of its disk is reached (429, 503, 507)."""

    statuses = (429, 503, 507)


class ServerError(ApiError):
    """The gateway failed (any other 5xx)."""

    statuses = (500, 501, 502, 504)


_BY_STATUS = {
    status: kind
    for kind in (
        InvalidRequestError,
        UnauthorizedError,
        ForbiddenError,
        NotFoundError,
        PolicyError,
        CapacityError,
        ServerError,
    )
    for status in kind.statuses
}


def api_error_class(status: int) -> type[ApiError]:
    """Return the class for an HTTP status of 400 or more."""
    return _BY_STATUS.get(status, ServerError if status >= 500 else InvalidRequestError)
