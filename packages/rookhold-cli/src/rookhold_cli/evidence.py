"""Keeps a job's evidence in a folder, with a page on how to check it.

The bytes of result artifact and envelope are written exactly as they came, since a signature covers
bytes. The receipt is written in its canonical form, the one its own digest is made of.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rookhold import ApiError, Artifact, JobDetail, Rookhold

from . import wholeness
from .errors import BadEvidenceError, FilesError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

RECEIPT: Final = "receipt.json"
RESULT: Final = "result.json"
ENVELOPE: Final = "envelope.json"
PUBLIC_KEY: Final = "public-key.pem"
README: Final = "README.txt"
NAMES: Final = (RECEIPT, RESULT, ENVELOPE, PUBLIC_KEY, README)
OUTPUT: Final = "output"

_SIGNING_SECONDS: Final = 60  # signing takes milliseconds; longer means that something is wrong
_SIGNING_WAIT: Final = 30  # the longest wait that a gateway grants


@dataclass(frozen=True, slots=True)
class Signed:
    """What a signature needs: both documents, and the key as its holder names it."""

    result: bytes
    envelope: bytes
    public_key_pem: bytes
    key_from_server: bool


def fetch_signed(
    client: Rookhold, job_id: str, public_key_pem: bytes | None = None
) -> Signed | None:
    """Wait for the signature and download; None if this gateway does not sign this job.

    `public_key_pem` is a key known from elsewhere; without it the server is asked for its own.
    """
    deadline = time.monotonic() + _SIGNING_SECONDS
    while True:
        try:
            envelope = client.attestation(job_id, _SIGNING_WAIT)
            break
        except ApiError as exc:
            if exc.code == "attestation_unavailable":
                return None
            if exc.code != "attestation_pending":
                raise
            if time.monotonic() > deadline:
                raise BadEvidenceError(
                    "the gateway has not signed this job yet; fetch its evidence later with"
                    f" `rookhold result {job_id} --evidence DIR`"
                ) from exc
            time.sleep(exc.retry_after or 1)
    result = client.result_artifact(job_id)
    pem = public_key_pem or client.public_key().pem.encode("ascii")
    return Signed(result.content, envelope.content, pem, key_from_server=public_key_pem is None)


def make_folder(folder: Path, *, ours: Iterable[str] = ()) -> None:
    """Create `folder`; one that exists must be empty, or hold nothing but names in `ours`."""
    known = set(ours)
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError(f"{folder} is not a folder")
        if folder.exists():
            if any(entry.name not in known for entry in folder.iterdir()):
                raise UsageError(f"{folder} is not empty; evidence needs a folder of its own")
        else:
            folder.mkdir(mode=0o755, parents=True)
    except OSError as exc:
        raise FilesError(f"cannot make the folder {folder} ({exc.strerror})") from exc


def check_place(folder: Path) -> None:
    """Refuse early a place where `folder` could not be made later; changes nothing."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise FilesError(f"cannot make the folder {folder} here; use --evidence or --no-evidence")


def write(
    folder: Path, detail: JobDetail, signed: Signed | None, artifacts: Iterable[Artifact] = ()
) -> None:
    """Fill `folder`, which exists. Only output files that the receipt names are written."""
    receipt = detail.receipt or {}
    named = {entry["path"] for entry in receipt.get("artifacts") or ()}
    try:
        _put(folder / RECEIPT, canonical(receipt))
        if signed is not None:
            _put(folder / RESULT, signed.result)
            _put(folder / ENVELOPE, signed.envelope)
            _put(folder / PUBLIC_KEY, signed.public_key_pem)
        _put(folder / README, _readme(detail, signed).encode())
        for artifact in artifacts:
            if artifact.path in named:
                put_output(folder, artifact)
    except OSError as exc:
        raise FilesError(f"cannot write evidence into {folder} ({exc.strerror})") from exc


def put_output(folder: Path, artifact: Artifact) -> Path:
    """Write an output file to the path the job gave it, which must stay below `folder`/output."""
    parts = artifact.path.split("/")
    if parts[0] != OUTPUT or len(parts) < 2 or any(part in {"", ".", ".."} for part in parts):
        raise FilesError("the gateway named an output file outside of output/")
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    _put(target, artifact.content)
    return target


def canonical(value: Mapping[str, Any]) -> bytes:
    """Write JSON as receipts are stored: sorted members, no spaces, only what must be escaped."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def _put(path: Path, content: bytes) -> None:
    """Write a new file; an old one of that name is replaced, never written through."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)


def _readme(detail: JobDetail, signed: Signed | None) -> str:
    receipt = detail.receipt or {}
    lines = [
        "Evidence of one Rookhold job",
        "",
        f"  job       {detail.job_id}",
        f"  tenant    {detail.tenant}",
        f"  language  {detail.language}",
        f"  outcome   {detail.status}",
        f"  backend   {_backend(receipt)}",
        "",
        "Files",
        "",
        f"  {RECEIPT}    what was asked for, what was observed, and how it ended",
    ]
    if signed is None:
        lines += [
            "",
            "The gateway did not sign this job. The receipt holds a checksum of itself",
            "(receipt_sha256), which shows accidental damage but no deliberate change.",
            "",
        ]
        return "\n".join(lines)
    lines += [
        f"  {RESULT}     what the job printed: the exact bytes that were signed",
        f"  {ENVELOPE}   the signed statement that binds receipt and result together",
        f"  {PUBLIC_KEY}  the key to check the signature with; read the last section",
        "",
        "To check it, without any network, in this folder:",
        "",
        f"  rookhold-verify verify --envelope {ENVELOPE} --subject {RESULT} \\",
        f"    --public-key {PUBLIC_KEY} --tenant {shlex.quote(detail.tenant)}",
        "",
        "or, which also compares receipt.json and the output files:",
        "",
        f"  rookhold verify --tenant {shlex.quote(detail.tenant)} .",
        "",
        "What that proves",
        "",
        "That the holder of the key signed exactly these bytes. It does not say that the job went",
        "well: read the outcome. And it is only as good as the key:",
        "",
    ]
    lines += _KEY_FROM_SERVER if signed.key_from_server else _KEY_FROM_ELSEWHERE
    return "\n".join(lines)


def _backend(receipt: Mapping[str, Any]) -> str:
    if wholeness.lost_its_gateway(receipt):
        return "not recorded: the gateway ended while the job ran"
    return receipt.get("backend") or "none: it never started"


_KEY_FROM_SERVER: Final = [
    f"{PUBLIC_KEY} was fetched from the server that signed. Such a key is no trust anchor: whoever",
    "can forge the evidence can hand out a matching key. Get the key from the gateway's operator",
    "by another way, once, and check with that one instead of the file here.",
    "",
]
_KEY_FROM_ELSEWHERE: Final = [
    f"{PUBLIC_KEY} did not come from the server that signed; it is the key this command already",
    "had. Whoever gets this folder from you must get the key by another way: a key that travels",
    "with the evidence is no trust anchor.",
    "",
]
