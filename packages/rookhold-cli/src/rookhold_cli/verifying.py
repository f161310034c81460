"""Checks evidence offline with rookhold_attestation, and compares what lies beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import evidence
from .absence import is_absent
from .errors import BadEvidenceError, FilesError, UsageError
from .extras import load, present

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_INPUT_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What holds: the signature, and of the files beside it those listed in `compared`.

    `absent` names the signed output files that do not lie there.
    """

    execution_id: str
    tenant: str
    tenant_checked: bool
    outcome: str
    event_chain_complete: bool
    key_ids: tuple[str, ...]
    compared: tuple[str, ...]
    absent: tuple[str, ...] = ()


def can_verify() -> bool:
    return present("rookhold_attestation")


def read_file(path: Path, limit: int = _INPUT_MAX) -> bytes:
    """Read a regular file of bounded size."""
    try:
        if path.is_symlink() or not path.is_file():
            raise FilesError(f"{path} is not there, or is not a regular file")
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as exc:
        raise FilesError(f"cannot read {path} ({exc.strerror})") from exc
    if len(content) > limit:
        raise BadEvidenceError(f"{path.name} is too large to be evidence")
    return content


def load_keys(paths: Sequence[Path]) -> list[Any]:
    """Read trusted public keys, each a file that nobody else may change."""
    keys = load("rookhold_attestation.keys", what="verifying", extra="verify")
    errors = load("rookhold_attestation.errors", what="verifying", extra="verify")
    try:
        return [keys.PublicKey.load(path) for path in paths]
    except errors.FileIoError as exc:
        raise FilesError(f"{exc} ({exc.code})") from exc
    except errors.AttestationError as exc:  # the caller's choice of a file; no evidence is judged
        raise UsageError(f"{exc} ({exc.code})") from exc


def parse_key(pem: bytes) -> Any:
    """Read a public key that is used without being trusted for where it lies."""
    keys = load("rookhold_attestation.keys", what="verifying", extra="verify")
    errors = load("rookhold_attestation.errors", what="verifying", extra="verify")
    try:
        return keys.PublicKey.from_pem(pem.decode("ascii"))
    except UnicodeDecodeError as exc:
        raise BadEvidenceError("the public key is not PEM text") from exc
    except errors.AttestationError as exc:
        raise BadEvidenceError(f"{exc} ({exc.code})") from exc


def verify(
    envelope: bytes,
    artifact: bytes,
    keys: Sequence[Any],
    *,
    tenant: str | None = None,
    folder: Path | None = None,
) -> Verdict:
    """Verify the signature and, with `folder`, that the files there belong to it.

    Raises BadEvidenceError with the first thing that does not hold.
    """
    module = load("rookhold_attestation.verify", what="verifying", extra="verify")
    errors = load("rookhold_attestation.errors", what="verifying", extra="verify")
    try:
        found = module.verify_envelope(
            envelope, artifact=artifact, keys=keys, policy=module.Policy(tenant=tenant)
        )
        compared = () if folder is None else _compare(folder, found.receipt)
        absent = () if folder is None else _absent(found.receipt, compared)
    except errors.AttestationError as exc:
        raise BadEvidenceError(f"{exc} ({exc.code})") from exc
    return Verdict(
        execution_id=found.execution_id,
        tenant=found.tenant,
        tenant_checked=tenant is not None,
        outcome=found.outcome,
        event_chain_complete=found.event_chain_complete,
        key_ids=tuple(found.key_ids),
        compared=compared,
        absent=absent,
    )


def verify_folder(folder: Path, *, keys: Sequence[Any] = (), tenant: str | None = None) -> Verdict:
    """Verify a folder that `rookhold run` wrote; without `keys`, by the key that lies in it."""
    if is_absent(folder / evidence.ENVELOPE) and (inside := _evidence_in(folder)):
        raise FilesError(
            f"{folder} is no folder of evidence, but holds {len(inside)}: name one, as"
            f" {folder / inside[0]}, or each, as {folder}/*"
        )
    envelope = read_file(folder / evidence.ENVELOPE)
    artifact = read_file(folder / evidence.RESULT)
    trusted = keys or [parse_key(read_file(folder / evidence.PUBLIC_KEY))]
    return verify(envelope, artifact, trusted, tenant=tenant, folder=folder)


def _evidence_in(folder: Path) -> list[str]:
    """Name the folders of evidence below; what we may not look at is left out."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if _holds_evidence(entry))
    except OSError:
        return []


def _holds_evidence(folder: Path) -> bool:
    try:
        return (folder / evidence.ENVELOPE).is_file()
    except OSError:
        return False


def _compare(folder: Path, receipt: dict[str, Any]) -> tuple[str, ...]:
    compared = []
    if (folder / evidence.RECEIPT).exists():
        strictjson = load("rookhold_attestation.strictjson", what="verifying", extra="verify")
        beside = strictjson.parse(read_file(folder / evidence.RECEIPT), "receipt.json")
        if not isinstance(beside, dict) or evidence.canonical(beside) != evidence.canonical(
            receipt
        ):
            raise BadEvidenceError("receipt.json is not the receipt that was signed")
        compared.append(evidence.RECEIPT)
    signed = {entry["path"]: entry["sha256"] for entry in receipt.get("artifacts") or ()}
    for path in sorted((folder / "output").rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = path.relative_to(folder).as_posix()
        if signed.get(name) != hashlib.sha256(read_file(path)).hexdigest():
            raise BadEvidenceError(f"{name} is not an output file that was signed")
        compared.append(name)
    return tuple(compared)


def _absent(receipt: dict[str, Any], compared: Sequence[str]) -> tuple[str, ...]:
    signed = (str(entry["path"]) for entry in receipt.get("artifacts") or ())
    return tuple(path for path in signed if path not in compared)
