"""What each operation takes, answers and refuses; the routes themselves say what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from rookhold_attestation import profile
from rookhold_types.jobs import JobSpec
from rookhold_types.runtimes import LANGUAGES
from rookhold_types.service import (
    Capabilities,
    ProtectedResourceView,
    PublicKeyView,
    Status,
    WhoAmI,
)
from rookhold_types.states import JobStatus
from rookhold_types.views import (
    CancelResponse,
    JobDetail,
    JobPage,
    ReplayPage,
    ResultView,
    StreamTicket,
    SubmitResponse,
)

JSON: Final = "application/json"
_SEQ_MAX: Final = 2**63 - 1


class Parameter(Struct, frozen=True, kw_only=True):
    name: str
    schema: Mapping[str, Any]
    description: str
    place: str = "query"


class Answer(Struct, frozen=True, kw_only=True):
    """A success; `body` is a type of ours, a schema, or None where there is no JSON to describe."""

    status: int
    description: str
    body: type | Mapping[str, Any] | None = None
    media_type: str = JSON
    headers: tuple[str, ...] = ()


class Operation(Struct, frozen=True, kw_only=True):
    operation_id: str
    summary: str
    answers: tuple[Answer, ...]
    codes: tuple[str, ...] = ()  # beyond those of every route of its kind
    parameters: tuple[Parameter, ...] = ()
    request: type | None = None
    ticket: bool = False  # a stream ticket may stand for the credential
    operator: bool = False  # takes the operator's token, which no other route takes


def _integer(name: str, low: int, high: int, default: int, description: str) -> Parameter:
    schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return Parameter(name=name, schema=schema, description=description)


_OK: Final = {
    "type": "object",
    "properties": {"ok": {"const": True}},
    "required": ["ok"],
    "additionalProperties": False,
}
_AFTER: Final = _integer("after", 0, _SEQ_MAX, 0, "Only events with a larger `seq`.")
_TICKET: Final = Parameter(
    name="ticket",
    schema={"type": "string"},
    description="A stream ticket of this job; ignored beside an `Authorization` header.",
)
_STORED: Final = "storage_unavailable"  # of whatever asks the store; a submission has its own
_LARGE: Final = ("tenant_response_capacity", "response_capacity", "shutting_down", _STORED)
_WAITS: Final = ("tenant_result_wait_capacity", "result_wait_capacity", "invalid_wait_seconds")
_STREAMS: Final = (
    "invalid_stream_ticket",
    "job_not_found",
    "invalid_event_cursor",
    "tenant_stream_capacity",
    "stream_capacity",
    "shutting_down",
    _STORED,
)
_SUBMISSION: Final = (
    "tenant_submit_body_capacity",
    "submit_body_capacity",
    "unsupported_media_type",
    "request_body_too_large",
    "request_body_timeout",
    "invalid_json",
    "invalid_idempotency_key",
    "idempotency_key_reused",
    "shutting_down",
    "startup_recovery",
    "minimum_isolation_unsatisfied",
    "unsupported_language",
    "runtime_unavailable",
    "empty_code",
    "code_too_large",
    "stdin_too_large",
    "too_many_input_files",
    "invalid_input_path",
    "duplicate_input_path",
    "invalid_input_base64",
    "input_file_too_large",
    "input_files_too_large",
    "too_many_output_files",
    "invalid_output_path",
    "duplicate_output_path",
    "runtime_pack_unavailable",
    "runtime_pack_requires_isolation",
    "network_opt_in_unsupported",
    "tenant_queue_saturated",
    "queue_saturated",
    "scheduler_unavailable",
    "storage_reserve",
    "tenant_storage_quota",
    "storage_capacity",
)


def _download(
    operation_id: str, summary: str, media_type: str, unavailable: str
) -> Mapping[str, Operation]:
    return {
        "GET": Operation(
            operation_id=operation_id,
            summary=summary,
            parameters=(
                _integer(
                    "wait_seconds", 0, 30, 0, "How long to wait for the run and its signature."
                ),
            ),
            answers=(
                Answer(
                    status=200,
                    description="Exactly the stored bytes.",
                    media_type=media_type,
                    headers=("x-content-sha256",),
                ),
            ),
            codes=(
                "job_not_found",
                "attestation_pending",
                unavailable,
                "unknown_query_parameter",
                *_WAITS,
                *_LARGE,
            ),
        )
    }


OPERATIONS: Final[Mapping[str, Mapping[str, Operation]]] = MappingProxyType(
    {
        "/v1/jobs": {
            "POST": Operation(
                operation_id="submitJob",
                summary="Submit a job.",
                request=JobSpec,
                parameters=(
                    Parameter(
                        name="Idempotency-Key",
                        place="header",
                        schema={"type": "string", "pattern": "^[!-~]{1,128}$"},
                        description="The same key with the same request is the same job.",
                    ),
                ),
                answers=(
                    Answer(
                        status=201,
                        description="Durably accepted, now or by an earlier request of this key.",
                        body=SubmitResponse,
                        headers=("location", "idempotency-replayed"),
                    ),
                ),
                codes=_SUBMISSION,
            ),
            "GET": Operation(
                operation_id="listJobs",
                summary="List your jobs, newest first.",
                parameters=(
                    _integer("limit", 1, 500, 50, "Rows of a page."),
                    Parameter(
                        name="cursor",
                        schema={"type": "string", "pattern": r"^[0-9]{1,19}:[\s\S]{1,128}$"},
                        description="`next_cursor` of the page before; nothing to be made up.",
                    ),
                    Parameter(
                        name="status",
                        schema={"enum": [status.value for status in JobStatus]},
                        description="Only jobs of this status.",
                    ),
                    Parameter(
                        name="language",
                        schema={"enum": list(LANGUAGES)},
                        description="Only jobs of this language.",
                    ),
                ),
                answers=(Answer(status=200, description="A page.", body=JobPage),),
                codes=(
                    "unknown_query_parameter",
                    "invalid_limit",
                    "invalid_cursor",
                    "invalid_status",
                    "unsupported_language",
                    _STORED,
                ),
            ),
        },
        "/v1/jobs/{job_id}": {
            "GET": Operation(
                operation_id="getJob",
                summary="Everything that is known of a job, its receipt included.",
                answers=(Answer(status=200, description="The job.", body=JobDetail),),
                codes=("job_not_found", *_LARGE),
            ),
            "DELETE": Operation(
                operation_id="cancelJob",
                summary="Cancel a job, waiting or running. Repeating it changes nothing.",
                answers=(
                    Answer(status=200, description="What the cancel found.", body=CancelResponse),
                ),
                codes=("job_not_found", _STORED),
            ),
        },
        "/v1/jobs/{job_id}/replay": {
            "GET": Operation(
                operation_id="replayEvents",
                summary="A page of a job's stored events. Nothing is run again.",
                parameters=(_AFTER, _integer("limit", 1, 5000, 1000, "Events of a page.")),
                answers=(Answer(status=200, description="A page.", body=ReplayPage),),
                codes=(
                    "job_not_found",
                    "unknown_query_parameter",
                    "invalid_event_cursor",
                    "invalid_limit",
                    *_LARGE,
                ),
            )
        },
        "/v1/jobs/{job_id}/result": {
            "GET": Operation(
                operation_id="getResult",
                summary="Outcome and output, waited for.",
                parameters=(_integer("wait_seconds", 0, 300, 60, "How long to wait for the end."),),
                answers=(
                    Answer(status=200, description="The job has ended.", body=ResultView),
                    Answer(status=202, description="It has not; what there is.", body=ResultView),
                ),
                codes=("job_not_found", *_WAITS, *_LARGE),
            )
        },
        "/v1/jobs/{job_id}/attestation": _download(
            "getAttestation",
            "The signed envelope.",
            profile.ENVELOPE_MEDIA_TYPE,
            "attestation_unavailable",
        ),
        "/v1/jobs/{job_id}/result-artifact": _download(
            "getResultArtifact",
            "The artifact that the envelope is about.",
            profile.RESULT_MEDIA_TYPE,
            "result_artifact_unavailable",
        ),
        "/v1/jobs/{job_id}/stream-ticket": {
            "POST": Operation(
                operation_id="mintStreamTicket",
                summary=(
                    "A ticket that opens one stream of this job within half a minute: "
                    "as `?ticket=` of `/stream` or `/events`."
                ),
                answers=(Answer(status=200, description="The ticket.", body=StreamTicket),),
                codes=("job_not_found", "shutting_down", _STORED),
            )
        },
        "/v1/jobs/{job_id}/stream": {
            "GET": Operation(
                operation_id="openStream",
                summary="A WebSocket: one text frame per event, stored ones first.",
                parameters=(_AFTER, _TICKET),
                answers=(Answer(status=101, description="Frames follow, each a WireEvent."),),
                codes=("upgrade_required", *_STREAMS),
                ticket=True,
            )
        },
        "/v1/jobs/{job_id}/events": {
            "GET": Operation(
                operation_id="streamEvents",
                summary="Server-sent events: the same as the stream.",
                parameters=(
                    _AFTER,
                    _TICKET,
                    Parameter(
                        name="Last-Event-ID",
                        place="header",
                        schema={"type": "integer", "minimum": 0, "maximum": _SEQ_MAX},
                        description="As `after`; the larger of the two counts.",
                    ),
                ),
                answers=(
                    Answer(
                        status=200,
                        description="`id` is the `seq`, `event` the kind, `data` a WireEvent.",
                        media_type="text/event-stream",
                    ),
                ),
                codes=_STREAMS,
                ticket=True,
            )
        },
        "/v1/status": {
            "GET": Operation(
                operation_id="getStatus",
                summary="The server now.",
                answers=(Answer(status=200, description="The status.", body=Status),),
            )
        },
        "/v1/capabilities": {
            "GET": Operation(
                operation_id="getCapabilities",
                summary="What this server offers, as configured.",
                answers=(Answer(status=200, description="The offer.", body=Capabilities),),
            )
        },
        "/v1/attestation/public-key": {
            "GET": Operation(
                operation_id="getPublicKey",
                summary="The key that signs now. Trust it only through another channel.",
                answers=(Answer(status=200, description="The key.", body=PublicKeyView),),
                codes=("attestations_disabled",),
            )
        },
        "/v1/whoami": {
            "GET": Operation(
                operation_id="whoAmI",
                summary="Who the credential says you are.",
                answers=(Answer(status=200, description="You.", body=WhoAmI),),
            )
        },
        "/whoami": {
            "GET": Operation(
                operation_id="whoAmIShort",
                summary="The same as /v1/whoami.",
                answers=(Answer(status=200, description="You.", body=WhoAmI),),
            )
        },
        "/.well-known/oauth-protected-resource": {
            "GET": Operation(
                operation_id="getProtectedResource",
                summary="Who gives out access tokens for this service (RFC 9728).",
                answers=(
                    Answer(status=200, description="The issuer.", body=ProtectedResourceView),
                ),
                codes=("oauth_not_configured",),
            )
        },
        "/healthz": {
            "GET": Operation(
                operation_id="getHealth",
                summary="Whether the process lives.",
                answers=(Answer(status=200, description="It does.", body=_OK),),
            )
        },
        "/readyz": {
            "GET": Operation(
                operation_id="getReadiness",
                summary="Whether a submission would be taken.",
                answers=(Answer(status=200, description="It would.", body=_OK),),
                codes=("startup_recovery", "shutting_down", _STORED),
            )
        },
        "/v1/metrics": {
            "GET": Operation(
                operation_id="getTenantMetrics",
                summary="How many jobs you have, for Prometheus.",
                answers=(
                    Answer(
                        status=200,
                        description="Two gauges, without a label that names you.",
                        media_type="text/plain",
                    ),
                ),
                codes=(_STORED,),
            )
        },
        "/metrics": {
            "GET": Operation(
                operation_id="getMetrics",
                summary="Counts of the whole server, for its operator's token alone.",
                answers=(
                    Answer(
                        status=200,
                        description="Prometheus text, or OpenMetrics where that is preferred.",
                        media_type="text/plain",
                    ),
                ),
                codes=("metrics_disabled", "invalid_metrics_token", _STORED),
                operator=True,
            )
        },
        "/openapi.json": {
            "GET": Operation(
                operation_id="getOpenApi",
                summary="This document.",
                answers=(Answer(status=200, description="OpenAPI 3.1.", body={"type": "object"}),),
            )
        },
        "/docs": {
            "GET": Operation(
                operation_id="readDocs",
                summary="This document as a page.",
                answers=(Answer(status=200, description="A page.", media_type="text/html"),),
            )
        },
    }
)
