"""What a caller asks to be run: the job specification, its stored form and its fingerprint."""

import hashlib
from typing import Any, Final

import msgspec

from rookhold_types.errors import CanonicalError
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import EffectiveLimits, Limits
from rookhold_types.wire import View, Wire, plain


class JobFile(Wire, frozen=True, kw_only=True):
    """An input file as it travels; its rules are checked by `check_spec`."""

    path: str
    content_base64: str


class Requirements(Wire, frozen=True, kw_only=True):
    """What the caller insists on; a backend that cannot give it refuses the job."""

    minimum_isolation: IsolationClass = IsolationClass.NONE


class JobSpec(Wire, frozen=True, kw_only=True):
    """One job. Decoding settles form and types; what the values may be is `check_spec`'s."""

    language: str
    code: str
    stdin: str | None = None
    limits: Limits = Limits()
    requirements: Requirements = Requirements()
    files: tuple[JobFile, ...] = ()
    outputs: tuple[str, ...] = ()
    runtime: str | None = None

    def stored(self) -> dict[str, Any]:
        """Return the spec as it is stored: plain JSON values, defaults filled in, unclamped."""
        return plain(self)


class JobFileView(View, frozen=True, kw_only=True):
    path: str
    content_base64: str


class RequirementsView(View, frozen=True, kw_only=True):
    minimum_isolation: str = IsolationClass.NONE.value


class EffectiveJobSpec(View, frozen=True, kw_only=True):
    """The spec as it really ran: the limits are those observed in force."""

    language: str
    code: str
    stdin: str | None
    limits: EffectiveLimits
    requirements: RequirementsView
    isolation_class: str | None
    files: tuple[JobFileView, ...]
    outputs: tuple[str, ...]
    runtime: str | None

    @classmethod
    def of(
        cls, spec: JobSpec, limits: EffectiveLimits, isolation_class: str | None
    ) -> "EffectiveJobSpec":
        """Return `spec` with the observed limits and class (None unless the job was ready)."""
        return cls(
            language=spec.language,
            code=spec.code,
            stdin=spec.stdin,
            limits=limits,
            requirements=RequirementsView(
                minimum_isolation=spec.requirements.minimum_isolation.value
            ),
            isolation_class=isolation_class,
            files=tuple(
                JobFileView(path=file.path, content_base64=file.content_base64)
                for file in spec.files
            ),
            outputs=spec.outputs,
            runtime=spec.runtime,
        )


# A spec holds only texts, 32-bit integers, booleans and nulls, and so its sorted encoding is its
# canonical JSON without the walk that `canonical` makes over foreign values. A test compares both.
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def stored_text(spec: JobSpec) -> bytes:
    """Return the canonical JSON of the stored form of `spec`."""
    try:
        return _ENCODER.encode(spec)
    except UnicodeEncodeError:
        raise CanonicalError("a text holds a lone surrogate", reason="surrogate") from None


def fingerprint(spec: JobSpec) -> str:
    """Return the digest under which an idempotency key remembers `spec`.

    Member order, whitespace and omitted defaults make no difference; clamping is not applied.
    """
    return hashlib.sha256(stored_text(spec)).hexdigest()
