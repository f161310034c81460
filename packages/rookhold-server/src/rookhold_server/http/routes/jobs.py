"""The collection: submit a job, list one's jobs."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from rookhold_server import logs
from rookhold_server.http.body import SMALL_BYTES, declared_length, read_json_body
from rookhold_server.http.query import Query
from rookhold_server.refusal import Refusal
from rookhold_store import StorageUnavailableError
from rookhold_types.ids import valid_idempotency_key
from rookhold_types.jobs import JobSpec, fingerprint
from rookhold_types.runtimes import LANGUAGES
from rookhold_types.states import JobStatus
from rookhold_types.views import SubmitResponse
from rookhold_types.wire import decode_strict, encode

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services

_log = logging.getLogger(__name__)

_STATUSES: Final = frozenset(JobStatus)
_TIME_MAX: Final = 2**63 - 1  # a later time is as good: it is later than every row's
_CURSOR: Final = re.compile(r"([0-9]{1,19}):(.{1,128})", re.ASCII | re.DOTALL)


async def submit(call: Call, services: Services) -> None:
    length = declared_length(call)
    small = length is not None and length <= SMALL_BYTES
    pools = services.pools
    # Held until the job is durably accepted, also for a client that has left meanwhile.
    async with (pools.small_bodies if small else pools.other_bodies).hold(call.principal.tenant):
        body = await read_json_body(call)
        spec, digest = await _decode(body)
        try:
            submitted = await services.engine.submit(
                tenant=call.principal.tenant,
                spec=spec,
                fingerprint=digest,
                idempotency_key=_idempotency_key(call),
            )
        except StorageUnavailableError as error:  # no room has codes of its own
            _log.error("the storage failed a submission: %s", error)
            raise Refusal("internal_error") from error
    logs.add(job_id=submitted.job_id)
    if not submitted.replayed:
        services.recorder.submitted(spec.language)
    answer = SubmitResponse.of(submitted.job_id)
    await call.respond(
        201,
        encode(answer),
        headers=(
            (b"location", f"/v1/jobs/{submitted.job_id}".encode()),
            (b"idempotency-replayed", b"true" if submitted.replayed else b"false"),
        ),
    )


async def list_jobs(call: Call, services: Services) -> None:
    query = Query(call)
    query.allow_only("limit", "cursor", "status", "language")
    limit = query.integer("limit", low=1, high=500, default=50, refusal="invalid_limit")
    cursor = _cursor(query.text("cursor", refusal="invalid_cursor"))
    status = query.text("status", refusal="invalid_status")
    if status is not None and status not in _STATUSES:
        raise Refusal("invalid_status")
    language = query.text("language", refusal="unsupported_language")
    if language is not None and language not in LANGUAGES:
        raise Refusal("unsupported_language")
    page = await services.engine.list_jobs(
        call.principal.tenant, limit=limit, cursor=cursor, status=status, language=language
    )
    await call.respond(200, encode(page))


async def _decode(body: bytes) -> tuple[JobSpec, str]:
    if len(body) <= SMALL_BYTES:
        return _decode_now(body)
    return await anyio.to_thread.run_sync(_decode_now, body)


def _decode_now(body: bytes) -> tuple[JobSpec, str]:
    spec = decode_strict(body, JobSpec)
    return spec, fingerprint(spec)


def _idempotency_key(call: Call) -> str | None:
    values = call.header(b"idempotency-key")
    if not values:
        return None
    key = values[0].decode("latin-1")
    if len(values) > 1 or not valid_idempotency_key(key):
        raise Refusal("invalid_idempotency_key")
    return key


def _cursor(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise Refusal("invalid_cursor")
    return min(int(match[1]), _TIME_MAX), match[2]
