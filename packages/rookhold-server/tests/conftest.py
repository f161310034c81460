"""An engine over a real store and a scripted executor, for faults no real one can be given."""

import hashlib
from collections import deque
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from rookhold_attestation import PrivateKey, binds
from rookhold_exec.executor import (
    KillReason,
    NotPermittedError,
    OutputRecord,
    Posture,
    Provenance,
    Report,
    StreamEvidence,
)
from rookhold_server.jobs.engine import Engine, EngineSettings, SignerConfig
from rookhold_server.jobs.history import history
from rookhold_store import Store
from rookhold_types import (
    EffectiveLimits,
    IsolationClass,
    JobSpec,
    JobStatus,
    LimitEnforcement,
    fingerprint,
)

TENANT = "acme"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Clock:
    """Stands still unless told otherwise."""

    def __init__(self, now_ms=1_790_000_000_000):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms

    def advance(self, ms):
        self.now_ms += ms


class ScriptedRun:
    """A job that does what the test says, when the test says it."""

    def __init__(self, plan, executor):
        self.plan = plan
        self.executor = executor
        self.kills = []
        self.offered = {"stdout": b"", "stderr": b""}
        self.report_error = None
        self.dies_when_killed = True
        self._send, self._receive = anyio.create_memory_object_stream(16)
        self._reported = anyio.Event()
        self._report = None

    async def emit(self, *events):
        for event in events:
            if isinstance(event, OutputRecord):
                raw = event.raw if event.raw is not None else event.line.encode()
                self.offered[event.stream] += raw + (b"\n" if event.eol else b"")
            await self._send.send(event)

    async def print(self, text, stream="stdout"):
        for line in text.splitlines(keepends=True):
            await self.emit(OutputRecord(stream, line.rstrip("\n"), line.endswith("\n")))

    def break_stream(self):
        """The event stream fails instead of ending."""
        self._stream_error = RuntimeError("the producer is gone")
        self._send.close()

    def end(self, status=JobStatus.SUCCEEDED, exit_code=0, killed_by=None, **changes):
        """Capture is complete and the report is there."""
        self._report = Report(
            status=status,
            exit_code=exit_code,
            killed_by=killed_by,
            wall_time_ms=changes.pop("wall_time_ms", 7),
            usage=None,
            stdout=self._evidence("stdout"),
            stderr=self._evidence("stderr"),
            provenance=changes.pop("provenance", self.executor.provenance),
            **changes,
        )
        self._send.close()
        self._reported.set()

    def _evidence(self, stream):
        raw = self.offered[stream]
        digest = hashlib.sha256(raw).hexdigest()
        return StreamEvidence(
            bytes_seen=len(raw),
            bytes_offered=len(raw),
            records_offered=raw.count(b"\n"),
            offered_sha256=digest,
            seen_sha256=digest,
            truncated=False,
        )

    _stream_error = None

    async def events(self):
        async with self._receive:
            async for event in self._receive:
                yield event
        if self._stream_error is not None:
            raise self._stream_error

    def kill(self, reason):
        self.kills.append(reason)
        if self.dies_when_killed and not self._reported.is_set():
            self.end(JobStatus.CANCELLED, None, "cancelled")

    async def wait(self):
        await self._reported.wait()
        if self.report_error is not None:
            raise self.report_error
        return self._report


class ScriptedExecutor:
    """Takes every plan; `script`, if set, plays each run by itself."""

    def __init__(self):
        self.posture = Posture(
            backend="off",
            isolation_class=IsolationClass.NONE,
            isolated=False,
            private_rootfs=False,
            dedicated_bootstrap=False,
            seccomp=False,
            networking="host",
            controls=(),
            limit_enforcement=LimitEnforcement(wall=True),
            languages=("python", "node", "bash"),
            tmpfs_charged_to_job=True,
            note="scripted",
        )
        self.provenance = Provenance(
            backend="off",
            isolation_class=IsolationClass.NONE,
            bootstrap_ready=True,
            isolated=False,
            seccomp=False,
            network_allowed=True,
            networking="host",
            private_rootfs=False,
            dedicated_bootstrap=False,
            controls=(),
            limit_enforcement=LimitEnforcement(wall=True),
            effective_limits=EffectiveLimits(wall_seconds=15, allow_network=True),
        )
        self.start_error = None
        self.start_gate = None
        self.script = None
        self.runs = []
        self.abandoned_starts = 0
        self._fresh = deque()
        self._news = anyio.Event()
        self._tasks = None

    async def open(self):
        pass

    async def close(self):
        pass

    async def start(self, plan):
        if self.start_gate is not None:
            try:
                await self.start_gate.wait()
            except BaseException:
                self.abandoned_starts += 1
                raise
        await anyio.lowlevel.checkpoint()
        if self.start_error is not None:
            raise self.start_error
        run = ScriptedRun(plan, self)
        self.runs.append(run)
        self._fresh.append(run)
        self._news.set()
        if self.script is not None:
            self._tasks.start_soon(self.script, run)
        return run

    async def next_run(self):
        while not self._fresh:
            self._news = anyio.Event()
            await self._news.wait()
        return self._fresh.popleft()

    def forget(self):
        """Close the streams of runs that nobody followed to their end."""
        for run in self.runs:
            run._send.close()
            run._receive.close()

    @property
    def started_ids(self):
        return [run.plan.job_id for run in self.runs]


class AheadScriptedExecutor(ScriptedExecutor):
    """One that is asked before it is decided whether the job may start."""

    start_error_before = None

    async def start_when(self, plan, permit):
        if self.start_error_before is not None:
            raise self.start_error_before
        try:
            allowed = await permit()
        except BaseException:
            self.abandoned_starts += 1
            raise
        if not allowed:
            self.abandoned_starts += 1
            raise NotPermittedError
        return await self.start(plan)


class Kit:
    """What a test of the engine holds; every engine it makes shares the one store file."""

    def __init__(self, path):
        self.path = path
        self.clock = Clock()
        self.executor = ScriptedExecutor()
        self.key = None
        self.store = None
        self.limits = None  # of the storage; for the next open
        self.companions = None
        self.settings = EngineSettings(
            version="0", workers=2, tenant_concurrency=2, worker_grace_seconds=5.0
        )
        self.open()

    def open(self):
        self.store = Store.open(self.path, binding=binds, clock=self.clock, limits=self.limits)

    def build_ahead(self):
        """Have an executor that builds its sandboxes during the durable start."""
        self.executor = AheadScriptedExecutor()

    def reopen(self):
        """As after a restart of the process."""
        self.store.close()
        self.open()

    def set(self, **changes):
        self.settings = msgspec.structs.replace(self.settings, **changes)

    def engine(self, **changes):
        signer = None if self.key is None else SignerConfig(key=self.key)
        return Engine(
            store=changes.get("store", self.store),
            executor=self.executor,
            settings=self.settings,
            signer=signer,
            clock=self.clock,
            companions=self.companions,
        )

    @asynccontextmanager
    async def running(self, engine=None):
        """An engine at work and past recovery; shut down at the end, within a deadline."""
        engine = engine or self.engine()
        started = anyio.Event()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                self.executor._tasks = tasks
                tasks.start_soon(lambda: engine.run(started=started.set))
                await started.wait()
                while not engine.recovered:
                    await anyio.sleep(0.001)
                try:
                    yield engine
                finally:
                    engine.begin_shutdown()
        self.executor.forget()

    def row(self, job_id):
        return self.store.read.get(None, job_id)

    def receipt(self, job_id):
        return msgspec.json.decode(self.row(job_id).receipt_json)

    def events(self, job_id):
        return history(self.store.read, job_id)

    def kinds(self, job_id):
        return [event.kind for event in self.events(job_id)]


@pytest.fixture
def kit(tmp_path):
    (tmp_path / "state").mkdir(mode=0o700)
    kit = Kit(tmp_path / "state" / "store.db")
    yield kit
    kit.store.close()


@pytest.fixture(scope="session")
def signing_key():
    return PrivateKey.generate()


@pytest.fixture
def job():
    """Make a spec; its code tells it from others."""

    def make(code="print(1)", language="python", **members):
        return msgspec.convert({"language": language, "code": code, **members}, JobSpec)

    return make


@pytest.fixture
def submit(job):
    """Submit a job and return its id."""

    async def put(engine, spec=None, *, tenant=TENANT, key=None, **members):
        spec = spec or job(**members)
        return await engine.submit(
            tenant=tenant, spec=spec, fingerprint=fingerprint(spec), idempotency_key=key
        )

    return put


@pytest.fixture
def finished():
    """Wait until a job is terminal and return its detail."""

    async def wait(engine, job_id, tenant=TENANT):
        assert await engine.wait_terminal(tenant, job_id, 30)
        return await engine.detail(tenant, job_id)

    return wait


@pytest.fixture
def kill_reason():
    return KillReason
