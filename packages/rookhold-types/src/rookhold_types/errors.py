"""The root of every error that Rookhold raises on purpose, with the errors of this wheel."""

from typing import ClassVar

from rookhold_types.codes import ERRORS, ErrorFact


class RookholdError(Exception):
    """Root of every error raised on purpose; always raised as a subclass.

    The message is for people and free to change. `code` and `detail` are for programs: a released
    code is never renamed or reused, and a detail holds no secret and nothing that a user wrote.
    """

    code: ClassVar[str] = "rookhold"
    retryable: ClassVar[bool] = False  # may the same call succeed later, unchanged?

    def __init__(self, message: str, **detail: str | int) -> None:
        super().__init__(message)
        self.detail = detail


class CodedError(RookholdError):
    """An error whose code is chosen when it is raised, from the table in `codes`.

    Base of refusals that differ in nothing but their code. An unknown code is a KeyError: it is a
    mistake in our own source, never the caller's doing.
    """

    fact: ErrorFact

    def __init__(self, message: str = "", *, code: str, **detail: str | int) -> None:
        fact = ERRORS[code]
        super().__init__(message or fact.message, **detail)
        self.fact = fact
        # Class attributes of the root, refined here for one instance.
        self.__dict__.update(code=code, retryable=fact.retryable)


class SpecError(CodedError):
    """A well-formed job specification asks for something that is refused."""


class InvalidJsonError(RookholdError):
    """Bytes that are not the expected JSON document. Quotes nothing of the content.

    `detail["reason"]` is one of `malformed` (syntax, encoding), `mismatch` (member or type),
    `duplicate_member`, `too_deep`; `detail["path"]` names our own members only.
    """

    code: ClassVar[str] = "invalid_json"


class CanonicalError(RookholdError):
    """A value that has no canonical JSON: a float, an integer too large, a text that is no text."""

    code: ClassVar[str] = "not_canonical"


class EventDataError(RookholdError):
    """An event whose data does not have the members that its kind promises."""

    code: ClassVar[str] = "invalid_event_data"
