"""A request that the engine will not carry out, told by a code of the error table."""

from __future__ import annotations

from rookhold_types.codes import ERRORS
from rookhold_types.errors import RookholdError


class Refusal(RookholdError):  # noqa: N818 - a refusal is an answer, not a fault
    """Carries its `code` on the instance; status and retry facts are the table's.

    An unknown code is a programming error and fails here, not at the client.
    """

    def __init__(self, code: str, message: str = "", **detail: str | int) -> None:
        fact = ERRORS[code]
        super().__init__(message or code.replace("_", " "), **detail)
        self.code = code  # type: ignore[misc]  # a ClassVar of the root, one per subclass there
        self.retryable = fact.retryable  # type: ignore[misc]
        self.status = fact.status
        self.retry_after = fact.retry_after
