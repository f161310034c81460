"""The ASGI application: the table of routes, and what happens around every request."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from starlette.routing import Route, Router

from rookhold_server import logs
from rookhold_server.http.call import NO_STORE, Call
from rookhold_server.http.flat import flat_problem
from rookhold_server.http.gate import Endpoint, admit, pass_through
from rookhold_server.http.problems import internal_error, problem
from rookhold_server.http.routes import (
    attestation,
    docs,
    governance,
    job,
    jobs,
    metrics,
    result,
    service,
    stream,
    well_known,
)
from rookhold_server.http.stream.opening import from_ticket, from_ticket_or_key
from rookhold_server.http.transport import ClientGoneError
from rookhold_server.identity.scopes import Scope
from rookhold_server.metrics.recorder import REJECTIONS
from rookhold_server.refusal import Refusal
from rookhold_server.tracing.caller import caller_of
from rookhold_server.tracing.spans import current
from rookhold_store import StorageUnavailableError
from rookhold_types.errors import InvalidJsonError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rookhold_server.http.services import Services
    from rookhold_server.tracing.spans import Span

_log = logging.getLogger(__name__)
_CALL: Final = "rookhold.call"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"})
_FAULT: Final = 500
_SLASH: Final = b"%2f"

ROUTES: Final[Mapping[str, Mapping[str, Endpoint]]] = {
    "/v1/jobs": {
        "POST": Endpoint(jobs.submit, Scope.JOBS_SUBMIT, closes_if_unread=True),
        "GET": Endpoint(jobs.list_jobs, Scope.JOBS_READ),
    },
    "/v1/jobs/{job_id}": {
        "GET": Endpoint(job.detail, Scope.JOBS_READ),
        "DELETE": Endpoint(job.cancel, Scope.JOBS_CANCEL),
    },
    "/v1/jobs/{job_id}/replay": {"GET": Endpoint(job.replay, Scope.JOBS_READ)},
    "/v1/jobs/{job_id}/result": {"GET": Endpoint(result.result, Scope.JOBS_READ)},
    "/v1/jobs/{job_id}/attestation": {"GET": Endpoint(attestation.envelope, Scope.JOBS_READ)},
    "/v1/jobs/{job_id}/result-artifact": {
        "GET": Endpoint(attestation.result_artifact, Scope.JOBS_READ)
    },
    "/v1/jobs/{job_id}/stream-ticket": {"POST": Endpoint(stream.ticket, Scope.JOBS_READ)},
    "/v1/jobs/{job_id}/stream": {
        "GET": Endpoint(
            stream.websocket, Scope.JOBS_READ, identify=from_ticket_or_key, has_head=False
        )
    },
    "/v1/jobs/{job_id}/events": {
        "GET": Endpoint(stream.events, Scope.JOBS_READ, identify=from_ticket, has_head=False)
    },
    "/v1/metrics": {"GET": Endpoint(metrics.tenant, Scope.METRICS_READ)},
    "/v1/status": {"GET": Endpoint(service.status, Scope.SERVICE_READ)},
    "/v1/capabilities": {"GET": Endpoint(service.capabilities, Scope.SERVICE_READ)},
    "/v1/attestation/public-key": {"GET": Endpoint(attestation.public_key, Scope.SERVICE_READ)},
    "/v1/whoami": {"GET": Endpoint(service.whoami, Scope.SERVICE_READ)},
    "/whoami": {"GET": Endpoint(service.whoami, Scope.SERVICE_READ)},
    "/.well-known/oauth-protected-resource": {"GET": Endpoint(well_known.protected_resource)},
    "/metrics": {"GET": Endpoint(metrics.operator)},
    "/openapi.json": {"GET": Endpoint(docs.document)},
    "/docs": {"GET": Endpoint(docs.page)},
    "/healthz": {"GET": Endpoint(service.healthz)},
    "/readyz": {"GET": Endpoint(service.readyz)},
}


class Application:
    """One request in, one answer out, whatever happens in between."""

    def __init__(
        self, services: Services, routes: Mapping[str, Mapping[str, Endpoint]] = ROUTES
    ) -> None:
        self._recorder = services.recorder
        self._tracer = services.tracer
        self._router = Router(
            [Route(path, _Resource(path, methods, services)) for path, methods in routes.items()],
            redirect_slashes=False,
            default=_Elsewhere(services),
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        began = time.perf_counter()
        call = Call(scope, receive, send)
        scope[_CALL] = call
        scope["path"] = routed_path(scope)
        self._recorder.request_began()
        caller = caller_of(call.raw_headers)
        span = self._tracer.request(caller)
        facts = {"request_id": call.request_id, "trace_id": span.trace_id}
        if caller is not None:
            facts["caller_trace_id"] = caller.trace_id
        here = current.set(span)
        try:
            with logs.about(**facts):
                await self._answered(call, began)
        finally:
            current.reset(here)
            _end(span, call)

    async def _answered(self, call: Call, began: float) -> None:
        scope, receive, send = call.asgi
        try:
            await self._router(scope, receive, send)
        except (Refusal, SpecError, InvalidJsonError) as refusal:
            self._note(call, refusal.code)
            told = flat_problem if call.flat else problem
            status, headers, body = told(refusal, call.request_id)
            await _answer(call, status, body, headers)
        except StorageUnavailableError as unavailable:  # never "not found", never an empty list
            await _storage_fails(call, unavailable)
        except ClientGoneError:
            pass
        except Exception as exc:  # noqa: BLE001 - the edge: any fault becomes the envelope
            call.code = "internal_error"
            _log.error("a request failed", exc_info=exc)
            if not call.started:  # half an answer cannot be taken back: the transport then closes
                status, body = internal_error(call.request_id)
                await _answer(call, status, body, [])
        finally:
            self._recorder.request_ended(
                call.method, call.route, call.status, time.perf_counter() - began
            )
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "request",
                extra={
                    "method": call.method,
                    "route": call.route,
                    "status": call.status,
                    "ms": round((time.perf_counter() - began) * 1000, 2),
                },
            )

    def _note(self, call: Call, code: str) -> None:
        """Count what was refused for want of room; some codes count only for a submission."""
        call.code = code
        rejection = REJECTIONS.get(code)
        if rejection is None:
            return
        submission = call.method == "POST" and call.route == "/v1/jobs"
        if submission or rejection.scope != "scheduler":
            self._recorder.rejected(rejection)


def routed_path(scope: Any) -> str:
    """The path, in which an encoded slash separates nothing: a job id is opaque, also with one."""
    path: str = scope["path"]
    raw: bytes = scope["raw_path"]
    if _SLASH not in raw.lower() or not raw.startswith(b"/"):
        return path
    return "/".join(unquote(part).replace("/", "\\") for part in raw.decode("latin-1").split("/"))


class _Resource:
    """An ASGI application for one path: chooses by method."""

    def __init__(self, path: str, methods: Mapping[str, Endpoint], services: Services) -> None:
        self._path = path
        self._services = services
        self._endpoints = dict(methods)
        if "GET" in methods and methods["GET"].has_head:
            self._endpoints["HEAD"] = methods["GET"]
        self._allow = ", ".join(sorted(self._endpoints))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        del receive, send  # the call has them
        call: Call = scope[_CALL]
        call.route = self._path
        endpoint = self._endpoints.get(call.method)
        if endpoint is None:
            _mark_uncacheable(call, self._path)
            raise Refusal("method_not_allowed", allow=self._allow)
        await pass_through(call, self._services, endpoint)


class _Elsewhere:
    """An ASGI application for every path that no route is for."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        del receive, send
        call: Call = scope[_CALL]
        if governance.is_governed(scope["path"]):
            call.flat = True
            await admit(call, self._services)
            await governance.unavailable(call, self._services)
            return
        _mark_uncacheable(call, scope["path"])
        raise Refusal("not_found")


def _mark_uncacheable(call: Call, path: str) -> None:
    """The gate does it for its own answers; these are given without passing it."""
    api = path.startswith("/v1/") or path == "/whoami"
    call.headers.extend(NO_STORE if api else NO_STORE[:1])


async def _storage_fails(call: Call, error: StorageUnavailableError) -> None:
    call.code = str(error.code)
    _log.warning("the storage failed a request: %s", error)
    if not call.started:
        status, headers, body = problem(Refusal(error.code), call.request_id)
        await _answer(call, status, body, headers)


async def _answer(call: Call, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    try:
        await call.respond(status, body, headers=headers)
    except ClientGoneError:
        _log.debug("the client left before its answer")


def _end(span: Span, call: Call) -> None:
    method = call.method if call.method in _METHODS else "_OTHER"
    facts: dict[str, str | int] = {
        "http.request.method": method,
        "http.response.status_code": call.status,
        "rookhold.request_id": call.request_id,
    }
    if call.route:
        facts["http.route"] = call.route
    if call.code is not None:
        facts["rookhold.code"] = call.code
    failed = call.code if call.status >= _FAULT else None
    span.end(f"{method} {call.route}".rstrip(), facts, failed=failed)
