"""A request that will not be carried out, told by a code of the error table."""

from __future__ import annotations

from rookhold_types.errors import CodedError


class Refusal(CodedError):  # noqa: N818 - a refusal is an answer, not a fault
    """Its `fact` holds status and retry facts; an unknown code fails here, not at the client."""

    def __init__(self, code: str, message: str = "", **detail: str | int) -> None:
        super().__init__(message, code=code, **detail)
