"""The credentials file: what it may hold, and who a token is by it."""

from __future__ import annotations

import hmac
from bisect import bisect_right
from hashlib import sha256
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from rookhold_server.identity.principal import Principal
from rookhold_server.identity.scopes import Scope
from rookhold_server.identity.structured import KEY_ID, Pepper, parts
from rookhold_types.errors import InvalidJsonError
from rookhold_types.ids import valid_identity
from rookhold_types.wire import Wire, decode_strict

FILE: Final = "ROOKHOLD_CREDENTIALS_FILE"
PEPPER: Final = "ROOKHOLD_CREDENTIAL_PEPPER_FILE"
FILE_BYTES_MAX: Final = 1024 * 1024
ENTRIES_MAX: Final = 10_000
PEPPER_FILE_BYTES_MAX: Final = 4096
_NOBODY: Final = bytes(32)  # no verifier: the digest that this would be of is not to be found

Instant = Annotated[int, Meta(ge=0, le=2**53 - 1)]  # Unix milliseconds
Digest = Annotated[str, Meta(pattern=r"^[0-9A-Fa-f]{64}\Z")]


class CredentialsFileError(ValueError):
    """Carries the rule that was broken; of the content at most the place of an entry, from 1."""


class Credential(Wire, frozen=True, kw_only=True):
    """One entry. The digest verifies a token and cannot make one."""

    key_id: str
    tenant_id: str
    principal_id: str
    digest_hmac_sha256: Digest
    scopes: tuple[Scope, ...]
    created_at_ms: Instant
    expires_at_ms: Instant | None = None
    revoked_at_ms: Instant | None = None

    @property
    def ends_at_ms(self) -> int | None:
        """From this instant on it is dead; None means never."""
        ends = [end for end in (self.expires_at_ms, self.revoked_at_ms) if end is not None]
        return min(ends, default=None)

    def is_alive(self, now_ms: int) -> bool:
        return (end := self.ends_at_ms) is None or now_ms < end

    def __repr__(self) -> str:
        return f"Credential({self.key_id!r})"


class CredentialsFile(Wire, frozen=True, kw_only=True):
    """The document as a whole."""

    version: Literal[1]
    credentials: Annotated[tuple[Credential, ...], Meta(min_length=1, max_length=ENTRIES_MAX)]


def parse_credentials(data: bytes) -> tuple[Credential, ...]:
    """Return every entry, or raise CredentialsFileError: one bad entry spoils them all."""
    if len(data) > FILE_BYTES_MAX:
        raise CredentialsFileError("is larger than 1 MiB")
    try:
        entries = decode_strict(data, CredentialsFile).credentials
    except InvalidJsonError as exc:
        raise CredentialsFileError(f"is no credentials file: {exc}") from None
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if (broken := broken_rule(entry)) is not None:
            raise CredentialsFileError(f"entry {number}: {broken}")
        if entry.key_id in seen:
            raise CredentialsFileError(f"entry {number}: its key_id is taken by another")
        seen.add(entry.key_id)
    return entries


def encode_credentials(entries: tuple[Credential, ...]) -> bytes:
    """Return the file that says this, one entry on a line."""
    lines = b",\n".join(msgspec.json.encode(entry) for entry in entries)
    return b'{"version": 1, "credentials": [\n' + lines + b"\n]}\n"


def parse_pepper(data: bytes) -> Pepper:
    """64 hex digits, with nothing but space around them."""
    try:
        text = data.decode("utf-8").strip() if len(data) <= PEPPER_FILE_BYTES_MAX else ""
    except UnicodeDecodeError:
        text = ""
    if len(text) != 64 or not set(text) <= set("0123456789abcdefABCDEF"):
        raise CredentialsFileError("must hold exactly 64 hexadecimal digits")
    return Pepper(bytes.fromhex(text))


def broken_rule(entry: Credential) -> str | None:
    """Return the rule that an entry of the right types breaks all the same."""
    if KEY_ID.fullmatch(entry.key_id) is None:
        return "key_id must be 1 to 64 of A-Z, a-z, 0-9 and -"
    if not valid_identity(entry.tenant_id):
        return "tenant_id must be 1 to 128 printable ASCII characters without space, quote, \\"
    if not valid_identity(entry.principal_id):
        return "principal_id must be 1 to 128 printable ASCII characters without space, quote, \\"
    if entry.expires_at_ms is not None and entry.expires_at_ms <= entry.created_at_ms:
        return "expires_at_ms must be later than created_at_ms"
    if entry.revoked_at_ms is not None and entry.revoked_at_ms < entry.created_at_ms:
        return "revoked_at_ms must not be before created_at_ms"
    return None


class CredentialSet:
    """What one state of the file says; another state is another set."""

    __slots__ = ("_by_id", "_pepper", "_revocations")

    def __init__(self, entries: tuple[Credential, ...], pepper: Pepper) -> None:
        self._pepper = pepper
        self._by_id = {
            entry.key_id: (bytes.fromhex(entry.digest_hmac_sha256), entry, _principal(entry))
            for entry in entries
        }
        self._revocations = sorted(
            entry.revoked_at_ms for entry in entries if entry.revoked_at_ms is not None
        )

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, token: str, now_ms: int) -> Principal | None:
        """Return who a token of the structured form is; every failure takes the same steps."""
        form = parts(token)
        known = self._by_id.get("" if form is None else form.key_id)
        digest = _NOBODY if known is None else known[0]
        matches = hmac.compare_digest(digest, self._pepper.verifier(token))
        if known is None or not matches or not known[1].is_alive(now_ms):
            return None
        return known[2]

    def stands(self, principal: Principal, scope: Scope, now_ms: int) -> bool:
        """Whether nobody has taken `scope` back from a principal that was found in some set.

        An expiry takes nothing back. Who came with another kind of credential stands.
        """
        if principal.credential_id is None:
            return True
        known = self._by_id.get(principal.credential_id)
        if known is None or scope not in known[1].scopes:
            return False
        _, entry, current = known
        if (current.tenant, current.verifier) != (principal.tenant, principal.verifier):
            return False
        return entry.revoked_at_ms is None or now_ms < entry.revoked_at_ms

    def revokes_between(self, after_ms: int, until_ms: int) -> bool:
        """Whether a revocation takes effect later than the one and not later than the other."""
        return bisect_right(self._revocations, after_ms) < bisect_right(self._revocations, until_ms)


def _principal(entry: Credential) -> Principal:
    return Principal(
        tenant=entry.tenant_id,
        principal_id=entry.principal_id,
        credential_id=entry.key_id,
        auth_method="api_key",
        scopes=frozenset(entry.scopes),
        expires_at_ms=entry.ends_at_ms,
        verifier=sha256(entry.digest_hmac_sha256.lower().encode()).hexdigest()[:16],
    )
