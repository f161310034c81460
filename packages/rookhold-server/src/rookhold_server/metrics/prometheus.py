"""The counts as Prometheus families, each with every series it can have from the start."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from rookhold_server.metrics.recorder import REJECTIONS, Recorder, Rejection, StorageWork
from rookhold_types.runtimes import LANGUAGES
from rookhold_types.states import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Iterable

# Bounds in seconds, as the contract has them.
HTTP_SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30,
)  # fmt: skip
JOB_SECONDS: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
)  # fmt: skip
STORAGE_SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5,
)  # fmt: skip
OTHER: Final = "other"
UNMATCHED: Final = "unmatched"  # the route of a request for a path that is none
F = TypeVar("F", Counter, Gauge, Histogram)
_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx", OTHER)
_STATUSES: Final = (*sorted(status.value for status in TERMINAL), "aborted")
_PARTS: Final = ("startup", "storage", "scheduler", "accepting")
DISK_REASONS: Final = ("reserve", "full")
_RESOURCES: Final = ("submit_bodies", "streams", "result_waits", "large_responses")


class Reading(Struct, frozen=True, kw_only=True):
    """What is looked at when somebody asks, rather than counted as it happens."""

    ready: bool
    parts: Mapping[str, bool]
    queue_depth: int
    queue_capacity: int
    used: Mapping[str, int]  # by resource
    limits: Mapping[str, int]
    stored: Stored | None  # None where the storage did not tell: the gauges stay as they were


class Stored(Struct, frozen=True, kw_only=True):
    """What only the storage knows. In bytes; a quota or reserve of 0 is none."""

    outbox: Mapping[str, int]  # `pending` and `failed`
    charged: int
    quota: int
    free: int
    reserve: int


class PrometheusRecorder(Recorder):
    """Keeps the counts of one process. `routes` maps each template to its methods."""

    def __init__(self, *, version: str, revision: str, routes: Mapping[str, Iterable[str]]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self._began = time.monotonic()
        self._methods = {method for methods in routes.values() for method in methods}

        def counter(name: str, text: str, **labels: Iterable[str]) -> Counter:
            made = Counter(f"rookhold_{name}", text, list(labels), registry=registry)
            return _started(made, labels)

        def gauge(name: str, text: str, **labels: Iterable[str]) -> Gauge:
            made = Gauge(f"rookhold_{name}", text, list(labels), registry=registry)
            return _started(made, labels)

        def histogram(
            name: str, text: str, bounds: tuple[float, ...], **labels: Iterable[str]
        ) -> Histogram:
            made = Histogram(
                f"rookhold_{name}", text, list(labels), buckets=bounds, registry=registry
            )
            return _started(made, labels)

        gauge("up", "Whether the process answers.").set(1)
        self._uptime = gauge("process_uptime_seconds", "Seconds since the process began.")
        gauge("build_info", "What runs.", version=[version], revision=[revision]).labels(
            version, revision
        ).set(1)
        self._active = gauge("http_server_active_requests", "Requests being answered.")
        self._requests = Counter(
            "rookhold_http_server_requests",
            "Requests answered.",
            ["method", "route", "status_class"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "rookhold_http_server_request_duration_seconds",
            "Time to answer a request.",
            ["method", "route"],
            buckets=HTTP_SECONDS,
            registry=registry,
        )
        for route, methods in (*routes.items(), (UNMATCHED, (OTHER,))):
            for method in methods:
                self._request_seconds.labels(method, route)
                for status_class in _CLASSES:
                    self._requests.labels(method, route, status_class)
        self._submitted = counter("jobs_submitted", "Jobs accepted.", language=LANGUAGES)
        self._completed = counter(
            "jobs_completed", "Jobs at their end.", language=LANGUAGES, status=_STATUSES
        )
        self._executing = gauge("executions_active", "Jobs in the executor.")
        self._execution_seconds = histogram(
            "job_execution_duration_seconds",
            "Time in the executor.",
            JOB_SECONDS,
            language=LANGUAGES,
            status=_STATUSES,
        )
        self._rejections = Counter(
            "rookhold_admission_rejections",
            "Requests refused for want of room.",
            ["scope", "reason"],
            registry=registry,
        )
        for rejection in set(REJECTIONS.values()):
            self._rejections.labels(*rejection)
        work = [item.value for item in StorageWork]
        self._operations = counter("storage_operations", "Uses of the storage.", operation=work)
        self._errors = counter("storage_errors", "Uses of it that failed.", operation=work)
        self._storage_seconds = histogram(
            "storage_operation_duration_seconds",
            "Time of one, until it is durable.",
            STORAGE_SECONDS,
            operation=work,
        )
        self._disk_refusals = counter(
            "storage_disk_refusals", "Jobs refused for want of disk.", reason=DISK_REASONS
        )
        self._charged = gauge("storage_charged_bytes", "What all jobs are charged.")
        self._quota = gauge("storage_quota_bytes", "What they may be charged; 0 for no limit.")
        self._free = gauge("storage_disk_free_bytes", "Free disk under the database.")
        self._reserve = gauge("storage_disk_reserve_bytes", "What of it is to stay free.")
        self._truncations = counter(
            "output_truncations",
            "Streams that were cut, and evidence that is incomplete.",
            kind=("stdout", "stderr", "evidence"),
        )
        self._recovered = counter(
            "recovered_jobs",
            "Jobs of an earlier process that were taken up.",
            kind=("interrupted_running", "restored_queued"),
        )
        self._sweeps = counter("retention_runs", "Sweeps.")
        self._sweep_errors = counter("retention_errors", "Sweeps that failed.")
        self._jobs_deleted = counter("retention_jobs_deleted", "Jobs removed.")
        self._events_deleted = counter("retention_events_deleted", "Events removed.")
        self._swept_at = gauge(
            "retention_last_success_timestamp_seconds", "When a sweep last went well."
        )
        self._attested = counter(
            "attestations",
            "Jobs whose signature was settled.",
            outcome=("signed", "waived", "failed"),
        )
        self._retries = counter("attestation_retries", "Signatures put off.")
        self._outbox = gauge(
            "attestation_outbox", "Jobs that are not signed.", state=("pending", "failed")
        )
        self._ready = gauge("ready", "Whether submissions would be taken.")
        self._parts = gauge("readiness_component", "What that depends on.", component=_PARTS)
        self._depth = gauge("queue_depth", "Jobs that wait.")
        self._capacity = gauge("queue_capacity", "Jobs that may wait.")
        self._used = gauge("capacity_used", "Permits that are taken.", resource=_RESOURCES)
        self._limits = gauge("capacity_limit", "Permits that there are.", resource=_RESOURCES)

    def look(self, reading: Reading) -> None:
        """Bring the gauges up to now."""
        self._uptime.set(time.monotonic() - self._began)
        self._ready.set(reading.ready)
        self._depth.set(reading.queue_depth)
        self._capacity.set(reading.queue_capacity)
        for gauge, values in (
            (self._parts, reading.parts),
            (self._used, reading.used),
            (self._limits, reading.limits),
        ):
            for name, value in values.items():
                gauge.labels(name).set(value)
        if (stored := reading.stored) is not None:
            for name, count in stored.outbox.items():
                self._outbox.labels(name).set(count)
            self._charged.set(stored.charged)
            self._quota.set(stored.quota)
            self._free.set(stored.free)
            self._reserve.set(stored.reserve)

    def request_began(self) -> None:
        self._active.inc()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        self._active.dec()
        if not route:
            method, route = OTHER, UNMATCHED
        elif method not in self._methods:
            method = OTHER
        status_class = f"{status // 100}xx"
        if status_class not in _CLASSES:
            status_class = OTHER
        self._requests.labels(method, route, status_class).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    def rejected(self, rejection: Rejection) -> None:
        self._rejections.labels(*rejection).inc()

    def submitted(self, language: str) -> None:
        self._submitted.labels(_language(language)).inc()

    def completed(self, language: str, status: str) -> None:
        self._completed.labels(_language(language), status).inc()

    def execution_began(self) -> None:
        self._executing.inc()

    def execution_ended(self, language: str, status: str, seconds: float) -> None:
        self._executing.dec()
        self._execution_seconds.labels(_language(language), status).observe(seconds)

    def stored(self, work: StorageWork, seconds: float, *, failed: bool) -> None:
        self._operations.labels(work.value).inc()
        self._storage_seconds.labels(work.value).observe(seconds)
        if failed:
            self._errors.labels(work.value).inc()

    def disk_refused(self, reason: str) -> None:
        self._disk_refusals.labels(reason).inc()

    def truncated(self, kind: str) -> None:
        self._truncations.labels(kind).inc()

    def recovered(self, *, interrupted: int = 0, restored: int = 0) -> None:
        self._recovered.labels("interrupted_running").inc(interrupted)
        self._recovered.labels("restored_queued").inc(restored)

    def swept(self, jobs: int, events: int, *, failed: bool) -> None:
        self._sweeps.inc()
        self._jobs_deleted.inc(jobs)
        self._events_deleted.inc(events)
        if failed:
            self._sweep_errors.inc()
        else:
            self._swept_at.set_to_current_time()

    def attested(self, outcome: str) -> None:
        self._attested.labels(outcome).inc()

    def attestation_retried(self) -> None:
        self._retries.inc()


def _started(family: F, labels: Mapping[str, Iterable[str]]) -> F:
    """Make every series that these labels allow, so that none appears only when it first counts."""
    if labels:
        for values in itertools.product(*labels.values()):
            family.labels(*values)
    return family


def _language(text: str) -> str:
    """A row of an older store may name any language; a label has only those there are."""
    return text if text in LANGUAGES else OTHER
