"""The client: one method for each thing a gateway can be asked."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Self, TypeVar

from ._members import Members
from ._patience import Pace, Patience
from ._spec import checked_key, job_body
from ._transport import Transport, checked_digest
from .errors import ApiError, CapacityError, IntegrityError, RookholdError
from .results import (
    CancelledJob,
    Download,
    Event,
    Job,
    JobDetail,
    Result,
    SubmittedJob,
    sha256,
)
from .service import Capabilities, Readiness, SigningKey, Status, WhoAmI

_T = TypeVar("_T")

DEFAULT_BASE_URL: Final = "http://127.0.0.1:7300"
_WAIT_STEP: Final = 30  # seconds of one result wait; a dropped one costs no more than that
_EVENT_PAGE: Final = 1000


class Rookhold:
    """A client of one gateway, for one tenant's key; use it as a context manager.

    `base_url` and `api_key` default to ROOKHOLD_BASE_URL and ROOKHOLD_API_KEY. `timeout` is for
    each request as a whole, in seconds, on top of what the gateway was asked to wait. `patience`
    is how long `run`, `wait` and a followed history keep trying while the gateway is away, and
    how long any large answer is asked for again while the gateway is too busy for it.
    Redirects are never followed and no proxy is used. Instances may be shared between threads.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float = 30.0,
    ) -> None:
        base_url = base_url or os.environ.get("ROOKHOLD_BASE_URL") or DEFAULT_BASE_URL
        api_key = api_key or os.environ.get("ROOKHOLD_API_KEY") or None
        self._http = Transport(base_url, api_key, timeout)
        self._patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # Jobs

    def submit(
        self,
        language: str,
        code: str,
        *,
        stdin: str | None = None,
        limits: Mapping[str, int | bool] | None = None,
        files: Mapping[str, bytes] | None = None,
        outputs: Sequence[str] = (),
        requirements: Mapping[str, str] | None = None,
        runtime: str | None = None,
        idempotency_key: str | None = None,
    ) -> SubmittedJob:
        """Hand in a job; it is durably accepted when this returns.

        `files` maps `input/...` paths to their bytes; `outputs` lists `output/...` paths to bring
        back. Without an `idempotency_key` one is made up, so that a dropped connection never
        makes two jobs of one call.
        """
        body = job_body(
            language,
            code,
            stdin=stdin,
            limits=limits,
            files=files,
            outputs=outputs,
            requirements=requirements,
            runtime=runtime,
        )
        key = checked_key(uuid.uuid4().hex if idempotency_key is None else idempotency_key)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        answer = self._http.exchange(
            "POST", "v1", "jobs", body=body, headers=headers, accept=(201,)
        )
        of = Members(answer.json())
        return SubmittedJob(
            job_id=of.text("job_id"),
            status=of.text("status"),
            replayed=answer.headers.get("idempotency-replayed") == "true",
        )

    def run(
        self,
        language: str,
        code: str,
        *,
        stdin: str | None = None,
        limits: Mapping[str, int | bool] | None = None,
        files: Mapping[str, bytes] | None = None,
        outputs: Sequence[str] = (),
        requirements: Mapping[str, str] | None = None,
        runtime: str | None = None,
        idempotency_key: str | None = None,
        wait_seconds: float | None = None,
    ) -> Result:
        """Submit a job and wait for its end, over dropped connections and restarts.

        A job that fails is a result like any other. Raises WaitExpiredError after `wait_seconds`,
        if given; the job goes on.
        """
        submitted = self.submit(
            language,
            code,
            stdin=stdin,
            limits=limits,
            files=files,
            outputs=outputs,
            requirements=requirements,
            runtime=runtime,
            idempotency_key=idempotency_key,
        )
        return self.wait(submitted.job_id, wait_seconds)

    def wait(self, job_id: str, seconds: float | None = None) -> Result:
        """Return the job's final result; wait for ever unless `seconds` is given."""
        until = None if seconds is None else time.monotonic() + seconds
        patience = Patience(self._patience, until=until)
        while True:
            # Rounded up: waiting a moment too long beats a last look that cannot wait at all.
            step = int(patience.left(_WAIT_STEP) + 0.999)
            try:
                result = self._result(job_id, step)
            except RookholdError as exc:
                patience.failed(exc)
                continue
            patience.worked()
            if result.finished:
                return result

    def result(self, job_id: str, wait_seconds: int = 0) -> Result:
        """Return what is stored now, or at the job's end if that comes within `wait_seconds`."""
        return self._patiently(lambda: self._result(job_id, wait_seconds))

    def _result(self, job_id: str, wait_seconds: int) -> Result:
        answer = self._http.exchange(
            "GET",
            "v1",
            "jobs",
            job_id,
            "result",
            query={"wait_seconds": wait_seconds},
            wait=wait_seconds,
            accept=(200, 202),
        )
        return Result.read(answer.json())

    def job(self, job_id: str) -> JobDetail:
        """Return everything that is known about a job, its receipt included once it has ended."""
        answer = self._patiently(lambda: self._http.exchange("GET", "v1", "jobs", job_id))
        return JobDetail.read(answer.json())

    def jobs(
        self, *, status: str | None = None, language: str | None = None, page_size: int = 50
    ) -> Iterator[Job]:
        """Yield this tenant's jobs, newest first, a page at a time as they are asked for."""
        cursor: str | None = None
        while True:
            query = {"limit": page_size, "cursor": cursor, "status": status, "language": language}
            page = Members(self._http.exchange("GET", "v1", "jobs", query=query).json())
            yield from (Job.read(item) for item in page.items("items"))
            cursor = page.maybe_text("next_cursor")
            if cursor is None:
                return

    def events(self, job_id: str, after: int = 0, *, follow: bool = False) -> Iterator[Event]:
        """Yield the job's history in order, each event once, from behind `after`.

        With `follow` it goes on until the job's last event, over dropped connections and
        restarts; without, it ends with what is stored now. A hole in the history raises
        IntegrityError.
        """
        pace = Pace()
        patience = Patience(self._patience)
        while True:
            try:
                events, complete = self._replay(job_id, after)
            except RookholdError as exc:
                if not follow:
                    raise
                patience.failed(exc)
                continue
            patience.worked()
            for event in events:
                if event.seq != after + 1:
                    raise IntegrityError("the job's history has a gap or repeats itself")
                after = event.seq
                yield event
            if complete or (not follow and not events):
                return
            if events:
                pace.news()
            if follow and len(events) < _EVENT_PAGE:
                pace.rest()

    def _replay(self, job_id: str, after: int) -> tuple[list[Event], bool]:
        query = {"after": after, "limit": _EVENT_PAGE}
        page = Members(
            self._http.exchange("GET", "v1", "jobs", job_id, "replay", query=query).json()
        )
        return [Event.read(item) for item in page.items("events")], page.flag("complete")

    def cancel(self, job_id: str) -> CancelledJob:
        """Ask for the job's end. Asking again, or for a job that has ended, changes nothing."""
        of = Members(self._http.exchange("DELETE", "v1", "jobs", job_id).json())
        return CancelledJob(
            job=Job.read(of.mapping("job")),
            cancellation_requested=of.flag("cancellation_requested"),
            already_terminal=of.flag("already_terminal"),
        )

    # Evidence

    def attestation(self, job_id: str, wait_seconds: int = 0) -> Download:
        """Return the signed envelope's exact bytes; ApiError `attestation_pending` if not yet."""
        return self._download(job_id, "attestation", wait_seconds)

    def result_artifact(self, job_id: str, wait_seconds: int = 0) -> Download:
        """Return the exact bytes that the envelope's subject digest covers."""
        return self._download(job_id, "result-artifact", wait_seconds)

    def _download(self, job_id: str, what: str, wait_seconds: int) -> Download:
        answer = self._patiently(
            lambda: self._http.exchange(
                "GET",
                "v1",
                "jobs",
                job_id,
                what,
                query={"wait_seconds": wait_seconds},
                headers={"Accept": "*/*"},
                wait=wait_seconds,
            )
        )
        digest = sha256(answer.body)
        checked_digest(answer, digest)
        media_type = answer.headers.get("content-type", "")
        return Download(content=answer.body, sha256=digest, media_type=media_type)

    def public_key(self) -> SigningKey:
        """Return the key the gateway signs with now; no trust anchor, for it names itself."""
        return SigningKey.read(self._http.exchange("GET", "v1", "attestation", "public-key").json())

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """Ask again while the gateway is too busy for one more large answer."""
        patience = Patience(self._patience)
        while True:
            try:
                return ask()
            except CapacityError as exc:
                patience.failed(exc)

    # The gateway

    def capabilities(self) -> Capabilities:
        return Capabilities.read(self._http.exchange("GET", "v1", "capabilities").json())

    def status(self) -> Status:
        return Status.read(self._http.exchange("GET", "v1", "status").json())

    def whoami(self) -> WhoAmI:
        return WhoAmI.read(self._http.exchange("GET", "v1", "whoami").json())

    def health(self) -> bool:
        """Say whether a gateway is alive there; raises UnreachableError if nothing answers."""
        return Members(self._http.exchange("GET", "healthz").json()).flag("ok")

    def ready(self) -> Readiness:
        """Say whether the gateway takes work now, and if not, why."""
        try:
            self._http.exchange("GET", "readyz")
        except ApiError as exc:
            if exc.status != 503:
                raise
            return Readiness(ready=False, code=exc.code)
        return Readiness(ready=True, code=None)
