"""The signed envelope of a job, the artifact it is about, and the key that signs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_attestation import profile
from rookhold_server.http.large import Large, respond_large
from rookhold_server.http.query import Query
from rookhold_server.http.routes.waiting import wait_for
from rookhold_server.refusal import Refusal
from rookhold_types.states import TERMINAL
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services
    from rookhold_server.jobs.engine import StoredAttestation


async def envelope(call: Call, services: Services) -> None:
    await _download(call, services, _envelope_of, unavailable="attestation_unavailable")


async def result_artifact(call: Call, services: Services) -> None:
    await _download(call, services, _artifact_of, unavailable="result_artifact_unavailable")


async def public_key(call: Call, services: Services) -> None:
    if services.public_key is None:
        raise Refusal("attestations_disabled")
    await call.respond(200, encode(services.public_key))


def _envelope_of(stored: StoredAttestation) -> Large:
    return _download_of(stored.envelope, stored.envelope_sha256, profile.ENVELOPE_MEDIA_TYPE)


def _artifact_of(stored: StoredAttestation) -> Large:
    return _download_of(stored.result_artifact, stored.result_sha256, stored.result_media_type)


def _download_of(body: bytes, digest: str, content_type: str) -> Large:
    headers = ((b"x-content-sha256", digest.encode()),)
    return Large(body=body, content_type=content_type.encode(), headers=headers)


async def _download(
    call: Call,
    services: Services,
    choose: Callable[[StoredAttestation], Large],
    *,
    unavailable: str,
) -> None:
    query = Query(call)
    query.allow_only("wait_seconds")
    seconds = query.integer(
        "wait_seconds", low=0, high=30, default=0, refusal="invalid_wait_seconds"
    )
    engine, tenant = services.engine, call.principal.tenant
    job_id = call.path_parameter("job_id")
    job = await engine.summary(tenant, job_id)
    if job is None:
        raise Refusal("job_not_found")

    async def read() -> Large:
        try:
            return choose(await engine.attestation(tenant, job_id))
        except Refusal as refusal:
            if refusal.code == "attestation_unavailable":
                raise Refusal(unavailable) from None
            raise

    try:
        await respond_large(call, services, read)
    except Refusal as refusal:
        undecided = refusal.code == "attestation_pending" or (
            refusal.code == unavailable and job.status not in TERMINAL
        )
        if not undecided or not seconds or services.public_key is None:
            raise
        await wait_for(
            call, services, lambda: engine.wait_attestation(tenant, job_id, float(seconds))
        )
        await respond_large(call, services, read)
