"""Which runtime packs a root file system offers: its record, bound to everything else in it.

A file cannot hold the digest of a manifest that covers the file. So the record names the digest of
the manifest without the record's own line; the digest that operators pin covers both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from rookhold_types.runtimes import PACKS

if TYPE_CHECKING:
    from collections.abc import Collection

DIRECTORY: Final = "etc/rookhold"
RECORD: Final = f"{DIRECTORY}/packs.json"
RECORD_PATH: Final = b"/" + RECORD.encode("ascii")
RECORD_BYTES_MAX: Final = 4096

_FORMAT: Final = 1


class PackRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `rookhold rootfs build` writes last; `manifest_sha256` leaves out the record itself."""

    format: int
    manifest_sha256: str
    packs: tuple[str, ...]


def record(languages: Collection[str], bare_digest: str) -> bytes:
    """Return the record for these languages and the digest of the manifest without it."""
    packs = tuple(pack for language, pack in PACKS.items() if language in languages)
    wanted = PackRecord(format=_FORMAT, manifest_sha256=bare_digest, packs=packs)
    return msgspec.json.encode(wanted) + b"\n"


def offered(content: bytes | None, bare_digest: str) -> tuple[str, ...]:
    """Return the packs of a record; none if there is no record, or it is about another tree."""
    if content is None:
        return ()
    try:
        read = msgspec.json.decode(content, type=PackRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    if read.format != _FORMAT or read.manifest_sha256 != bare_digest:
        return ()
    return tuple(pack for pack in PACKS.values() if pack in read.packs)
