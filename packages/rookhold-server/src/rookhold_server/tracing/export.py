"""Spans to an OpenTelemetry collector, over OTLP and HTTP. Needs `rookhold-server[otel]`.

The SDK is given every choice here: it would look for those that it is not given in variables that
this server does not read.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final

for _name in [name for name in os.environ if name.startswith("OTEL_")]:
    del os.environ[_name]  # before the SDK is loaded: some are read only then

import requests  # noqa: E402
from opentelemetry.context import Context  # noqa: E402
from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: E402
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: E402
from opentelemetry.sdk.resources import Resource  # noqa: E402
from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # noqa: E402
from opentelemetry.trace import (  # noqa: E402
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState  # noqa: E402

from rookhold_server.tracing.spans import NO_FACTS, Span, Tracer  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry import trace

    from rookhold_server.tracing.caller import Caller

_log = logging.getLogger(__name__)

_PATH: Final = "/v1/traces"
_SEND_SECONDS: Final = 5.0
_EVERY_MS: Final = 2000
_QUEUED_MAX: Final = 4096  # spans; while the collector is away, later ones are dropped
_BATCH: Final = 512
_CLOSE_SECONDS: Final = 3.0
_ROOT: Final = Context()  # nothing in it: what is begun in it has no parent


class _Exported(Span):
    __slots__ = ("otel",)

    def __init__(self, otel: trace.Span) -> None:
        super().__init__(format_trace_id(otel.get_span_context().trace_id))
        self.otel = otel

    def end(
        self, name: str, facts: Mapping[str, str | int] = NO_FACTS, *, failed: str | None = None
    ) -> None:
        otel = self.otel
        if otel.is_recording():
            otel.update_name(name)
            otel.set_attributes(facts)
            if failed is not None:
                otel.set_attribute("error.type", failed)
                otel.set_status(Status(StatusCode.ERROR))
        otel.end()


class ExportingTracer(Tracer):
    def __init__(
        self, *, endpoint: str, headers: Mapping[str, str], sample_percent: int, version: str
    ) -> None:
        """`endpoint` is the address without the path of the signal, as collectors give it."""
        session = requests.Session()
        session.trust_env = False  # no proxy and no password of the surroundings
        exporter = OTLPSpanExporter(
            endpoint=endpoint.rstrip("/") + _PATH,
            headers=dict(headers),
            timeout=_SEND_SECONDS,
            compression=Compression.Gzip,
            session=session,
        )
        self._provider = TracerProvider(
            sampler=TraceIdRatioBased(sample_percent / 100),
            resource=Resource({"service.name": "rookhold", "service.version": version}),
            span_limits=SpanLimits(
                **dict.fromkeys(("max_attributes", "max_events", "max_links"), 32),
                **dict.fromkeys(("max_span_attributes", "max_event_attributes"), 32),
                max_link_attributes=32,
                max_attribute_length=256,
                max_span_attribute_length=256,
            ),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=_QUEUED_MAX,
                schedule_delay_millis=_EVERY_MS,
                max_export_batch_size=_BATCH,
                export_timeout_millis=_SEND_SECONDS * 1000,
            )
        )
        self._tracer = self._provider.get_tracer("rookhold_server", version)

    def request(self, caller: Caller | None) -> Span:
        links = () if caller is None else (_link_to(caller),)
        return self._begin("request", SpanKind.SERVER, _ROOT, links)

    def job(self, origin: Span | None) -> Span:
        links = (Link(origin.otel.get_span_context()),) if isinstance(origin, _Exported) else ()
        return self._begin("job", SpanKind.INTERNAL, _ROOT, links)

    def part(self, of: Span, name: str) -> Span:
        within = set_span_in_context(of.otel, _ROOT) if isinstance(of, _Exported) else _ROOT
        return self._begin(name, SpanKind.INTERNAL, within, ())

    def _begin(self, name: str, kind: SpanKind, within: Context, links: Any) -> Span:
        return _Exported(self._tracer.start_span(name, context=within, kind=kind, links=links))

    def close(self) -> None:
        """A collector that does not answer does not hold the end of the server up."""
        last = threading.Thread(target=self._provider.shutdown, name="rookhold-traces", daemon=True)
        last.start()
        last.join(_CLOSE_SECONDS)
        if last.is_alive():
            _log.warning("the last traces could not be handed to the collector in time")


def _link_to(caller: Caller) -> Link:
    state = TraceState(caller.state)
    context = SpanContext(
        trace_id=int(caller.trace_id, 16),
        span_id=int(caller.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if caller.sampled else TraceFlags.DEFAULT),
        trace_state=state,
    )
    # The protocol's encoder leaves the state of a link out.
    return Link(context, {"w3c.tracestate": state.to_header()} if state else None)
