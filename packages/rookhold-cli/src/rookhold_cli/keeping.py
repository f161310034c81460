"""What `run` and `result` do once a job has ended: keep the evidence, check it, say where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import evidence, output, verifying
from .errors import BadEvidenceError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rookhold import Artifact, JobDetail, Rookhold


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the evidence is; `verified` is None where there was nothing to check, or no checker."""

    folder: Path
    signed: bool
    verified: bool | None


def keep(
    client: Rookhold,
    detail: JobDetail,
    folder: Path,
    artifacts: Iterable[Artifact] = (),
    *,
    public_key_pem: bytes | None = None,
    quiet: bool = False,
) -> Kept:
    """Write the evidence of a finished job into `folder` and check it at once."""
    signed = evidence.fetch_signed(client, detail.job_id, public_key_pem)
    # A folder of the job's own name holds this job's evidence: a repeated command writes it again.
    again = (*evidence.NAMES, evidence.OUTPUT) if folder.name == detail.job_id else ()
    evidence.make_folder(folder, ours=again)
    evidence.write(folder, detail, signed, artifacts)
    verified: bool | None = None
    words = "evidence, not signed by this gateway"
    if signed is not None and verifying.can_verify():
        try:
            verifying.verify_folder(
                folder, keys=[verifying.parse_key(signed.public_key_pem)], tenant=detail.tenant
            )
        except BadEvidenceError as exc:
            raise BadEvidenceError(f"the evidence in {folder} does not hold: {exc}") from exc
        verified = True
        words = "evidence, signed and verified"
        if signed.key_from_server:
            words += " (by the key this gateway names; pin it: see README.txt)"
    elif signed is not None:
        words = "evidence, signed but not checked here (pip install 'rookhold-cli[verify]')"
    if not quiet:
        output.say(f"{words}: {folder}")
    return Kept(folder, signed is not None, verified)
