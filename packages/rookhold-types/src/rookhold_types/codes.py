"""Every error code of the HTTP API with its facts: one table for servers, clients and docs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct


class ErrorFact(Struct, frozen=True, kw_only=True):
    """What is fixed about one code. The message is for people and may change; the rest may not."""

    status: int
    retryable: bool
    retry_after: int | None  # whole seconds; None: no header, or a value that the caller computes
    message: str


def _fact(
    status: int, message: str, *, retryable: bool = False, retry_after: int | None = None
) -> ErrorFact:
    return ErrorFact(status=status, retryable=retryable, retry_after=retry_after, message=message)


def _later(status: int, message: str) -> ErrorFact:
    """A refusal that the same request may survive a second later."""
    return _fact(status, message, retryable=True, retry_after=1)


ERRORS: Final[Mapping[str, ErrorFact]] = MappingProxyType(
    {
        # Routing.
        "not_found": _fact(404, "No such path."),
        "method_not_allowed": _fact(405, "This path does not answer that method."),
        # Credentials and authority.
        "missing_api_key": _fact(401, "This route needs a credential."),
        "invalid_api_key": _fact(401, "The credential is unknown, expired or revoked."),
        "invalid_authorization": _fact(401, "The Authorization header is malformed."),
        "invalid_stream_ticket": _fact(401, "The stream ticket is not valid for this stream."),
        "missing_auth_context": _fact(401, "The request reached a handler unauthenticated."),
        "missing_tenant": _fact(401, "The request reached a handler without a tenant."),
        "insufficient_scope": _fact(403, "The credential lacks the scope of this route."),
        # The wait is the time to the next minute (1 to 60 s), known only to the limiter.
        "rate_limit_exceeded": _fact(429, "Too many requests in this minute.", retryable=True),
        # Reading a request.
        "invalid_json": _fact(400, "The body is not the JSON document this route reads."),
        "request_body_timeout": _later(408, "The body did not arrive in time."),
        "request_body_too_large": _fact(413, "The body is over 24 MiB."),
        "unsupported_media_type": _fact(415, "The body must be declared as JSON."),
        "unknown_query_parameter": _fact(400, "The query has a parameter this route lacks."),
        "invalid_limit": _fact(400, "The limit is not an integer within this route's range."),
        "invalid_cursor": _fact(400, "The cursor is not one that a page returned."),
        "invalid_status": _fact(400, "The status is not a job status."),
        "invalid_event_cursor": _fact(400, "The event cursor is not an integer from 0."),
        "invalid_wait_seconds": _fact(400, "wait_seconds is not an integer within its range."),
        # What a job specification may say.
        "invalid_idempotency_key": _fact(400, "The idempotency key is repeated or malformed."),
        "idempotency_key_reused": _fact(422, "The idempotency key belongs to another request."),
        "minimum_isolation_unsatisfied": _fact(
            422, "The configured backend does not give the isolation that the job requires."
        ),
        "unsupported_language": _fact(400, "The language is not python, node or bash."),
        "runtime_unavailable": _fact(422, "The language is not available on this server."),
        "empty_code": _fact(400, "The code is blank."),
        "code_too_large": _fact(413, "The code is over 1 MiB."),
        "stdin_too_large": _fact(413, "The stdin is over 1 MiB."),
        "too_many_input_files": _fact(413, "There are more than 32 input files."),
        "invalid_input_path": _fact(400, "An input path breaks the rules for paths."),
        "duplicate_input_path": _fact(400, "Two input files have the same path."),
        "invalid_input_base64": _fact(400, "An input file is not padded standard base64."),
        "input_file_too_large": _fact(413, "An input file is over 2 MiB."),
        "input_files_too_large": _fact(413, "The input files together are over 4 MiB."),
        "too_many_output_files": _fact(413, "There are more than 32 requested outputs."),
        "invalid_output_path": _fact(400, "An output path breaks the rules for paths."),
        "duplicate_output_path": _fact(400, "An output path is requested twice."),
        "runtime_pack_unavailable": _fact(422, "This runtime pack is not offered for it."),
        "runtime_pack_requires_isolation": _fact(
            422, "Runtime packs exist only on backends with an isolation class."
        ),
        "network_opt_in_unsupported": _fact(400, "Jobs cannot ask for a network."),
        # Admission: a tenant's own exhaustion is 429, the whole server's 503, the disk's 507.
        "tenant_submit_body_capacity": _later(429, "Too many of your submissions are being read."),
        "submit_body_capacity": _later(503, "Too many submissions are being read."),
        "tenant_queue_saturated": _later(429, "Your queue is full."),
        "queue_saturated": _later(503, "The queue is full."),
        "tenant_storage_quota": _later(429, "Your storage quota is used up."),
        "storage_capacity": _later(503, "The storage quota of the server is used up."),
        "storage_reserve": _later(507, "Too little free disk is left to accept a job."),
        "scheduler_unavailable": _later(503, "The server admits no jobs at the moment."),
        "startup_recovery": _later(503, "The server is still recovering its jobs."),
        "shutting_down": _later(503, "The server is shutting down."),
        # Jobs and what is read about them.
        "job_not_found": _fact(404, "There is no such job."),
        "tenant_response_capacity": _later(429, "You are reading too many large responses."),
        "response_capacity": _later(503, "Too many large responses are being read."),
        "tenant_result_wait_capacity": _later(429, "You are waiting for too many results."),
        "result_wait_capacity": _later(503, "Too many requests are waiting for results."),
        "tenant_stream_capacity": _later(429, "You have too many streams open."),
        "stream_capacity": _later(503, "Too many streams are open."),
        "upgrade_required": _fact(426, "This route needs a WebSocket handshake."),
        "attestation_pending": _later(404, "The job is not signed yet."),
        "attestation_unavailable": _fact(404, "The job has no attestation."),
        "result_artifact_unavailable": _fact(404, "The job has no signed result artifact."),
        "attestations_disabled": _fact(404, "Signing is off on this server."),
        # Operation.
        "oauth_not_configured": _fact(404, "No token issuer is configured."),
        "metrics_disabled": _fact(404, "No metrics token is configured."),
        "invalid_metrics_token": _fact(401, "The metrics token is wrong."),
        "storage_unavailable": _later(503, "The storage does not answer."),
        "capability_unavailable": _fact(422, "This server was installed without that capability."),
        "internal_error": _fact(500, "The server failed; its log says why.", retryable=True),
    }
)
