"""A real listener and the real application, over the real engine or over one in memory.

The one in memory is for what a test must choose: a job's state, a fault, the moment of a commit.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from certificates import made, trusting
from http2_peer import Http2Peer

from rookhold_attestation import binds
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_server.config.address import Address
from rookhold_server.config.settings import read_settings
from rookhold_server.config.tls import listener_tls
from rookhold_server.http.app import Application
from rookhold_server.http.capacity import Pools
from rookhold_server.http.readiness import Readiness
from rookhold_server.http.services import Services
from rookhold_server.http.stream.tickets import TicketBook
from rookhold_server.http.transport import Server, TransportLimits, bind
from rookhold_server.identity.api_keys import parse_api_keys
from rookhold_server.identity.authentication import Authenticator
from rookhold_server.identity.principal import Principal
from rookhold_server.identity.rate_limit import RateLimiter
from rookhold_server.identity.scopes import Scope
from rookhold_server.jobs.engine import (
    Engine,
    EngineSettings,
    Refusal,
    StoredAttestation,
    Submitted,
    TenantStatus,
)
from rookhold_store import Store
from rookhold_types.checks import check_spec
from rookhold_types.clock import now_ms
from rookhold_types.events import WireEvent
from rookhold_types.ids import new_job_id
from rookhold_types.isolation import IsolationClass
from rookhold_types.limits import LimitEnforcement
from rookhold_types.service import (
    AttestationCapabilities,
    Capabilities,
    CapabilityLimits,
    ExecutionPosture,
    Features,
    PublicKeyView,
)
from rookhold_types.states import TERMINAL, JobStatus
from rookhold_types.views import (
    CancelResponse,
    JobDetail,
    JobPage,
    JobView,
    ReplayPage,
    ResultView,
)
from rookhold_types.wire import plain

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rookhold_exec.executor import Executor
    from rookhold_types.jobs import JobSpec

PATIENCE = 10.0  # seconds; a deadline of tests, ten times what is expected


class MemoryEngine:
    """Stands in for the job side where a test must choose its state, its fault or its moment."""

    def __init__(self) -> None:
        self.shutting_down = False
        self.recovered = True
        self.storage_answers = True
        self.fatal: str | None = None
        self.shutdown_event = anyio.Event()
        self.jobs: dict[tuple[str, str], JobView] = {}
        self.specs: dict[str, JobSpec] = {}
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}
        self.stdout = "hello\n"
        self.accepting = anyio.Event()  # set: accepts go through
        self.accepting.set()
        self.accepts_begun = 0
        self.fault: Exception | None = None
        self.attestations: dict[str, StoredAttestation] = {}
        self.attestation_state = "attestation_unavailable"
        self.reading = 0
        self.status_after_submit = JobStatus.SUCCEEDED

    def add(
        self, tenant: str, status: JobStatus = JobStatus.SUCCEEDED, language: str = "bash"
    ) -> str:
        job_id = new_job_id()
        now = time.time_ns() // 1_000_000
        self.jobs[tenant, job_id] = JobView(
            job_id=job_id, tenant=tenant, language=language, status=status, created_at_ms=now
        )
        return job_id

    def set_status(self, tenant: str, job_id: str, status: JobStatus) -> None:
        row = plain(self.jobs[tenant, job_id]) | {"status": status}
        self.jobs[tenant, job_id] = JobView(**row)

    def begin_shutdown(self) -> None:
        self.shutting_down = True
        self.shutdown_event.set()

    async def submit(
        self, *, tenant: str, spec: JobSpec, fingerprint: str, idempotency_key: str | None
    ) -> Submitted:
        self.accepts_begun += 1
        if self.fault is not None:
            raise self.fault
        known = self.keys.get((tenant, idempotency_key or ""))
        if known is not None:
            if known[1] != fingerprint:
                raise Refusal("idempotency_key_reused")
            return Submitted(job_id=known[0], replayed=True)
        check_spec(spec, available_languages=("python", "bash"), backend_class=IsolationClass.NONE)
        await self.accepting.wait()
        job_id = self.add(tenant, self.status_after_submit, spec.language)
        self.specs[job_id] = spec
        if idempotency_key is not None:
            self.keys[tenant, idempotency_key] = (job_id, fingerprint)
        return Submitted(job_id=job_id, replayed=False)

    async def summary(self, tenant: str, job_id: str) -> JobView | None:
        return self.jobs.get((tenant, job_id))

    def _own(self, tenant: str, job_id: str) -> JobView:
        if (row := self.jobs.get((tenant, job_id))) is None:
            raise Refusal("job_not_found")
        return row

    async def cancel(self, tenant: str, job_id: str) -> CancelResponse:
        row = self._own(tenant, job_id)
        terminal = row.status in TERMINAL
        return CancelResponse(
            job=row, cancellation_requested=not terminal, already_terminal=terminal
        )

    async def detail(self, tenant: str, job_id: str) -> JobDetail:
        row = plain(self._own(tenant, job_id))
        spec = self.specs.get(job_id)
        return JobDetail(**row, requested_spec={} if spec is None else plain(spec))

    async def list_jobs(
        self, tenant: str, *, limit: int, cursor: Any, status: Any, language: Any
    ) -> JobPage:
        rows = [
            row
            for (owner, _), row in self.jobs.items()
            if owner == tenant
            and (status is None or row.status == status)
            and (language is None or row.language == language)
            and (cursor is None or (row.created_at_ms, row.job_id) < cursor)
        ]
        rows.sort(key=lambda row: (row.created_at_ms, row.job_id), reverse=True)
        page = rows[:limit]
        more = len(rows) > limit
        return JobPage(
            items=tuple(page),
            next_cursor=f"{page[-1].created_at_ms}:{page[-1].job_id}" if more else None,
        )

    async def replay(self, tenant: str, job_id: str, after: int, limit: int) -> ReplayPage:
        self._own(tenant, job_id)
        events = tuple(
            WireEvent(
                seq=seq,
                ts_ms=1,
                kind="stdout",
                data={},
                prev_hash="",
                event_hash="",
                hash_version=1,
            )
            for seq in range(after + 1, min(after + limit, 3) + 1)
        )
        return ReplayPage(events=events, next_cursor=events[-1].seq if events else None)

    async def result(self, tenant: str, job_id: str) -> ResultView:
        row = self._own(tenant, job_id)
        self.reading += 1
        return ResultView(job_id=job_id, status=row.status, stdout=self.stdout, stderr="")

    async def wait_terminal(self, tenant: str, job_id: str, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while not self.shutting_down:
                if self.jobs[tenant, job_id].status in TERMINAL:
                    return True
                await anyio.sleep(0.01)
        return False

    async def attestation(self, tenant: str, job_id: str) -> StoredAttestation:
        self._own(tenant, job_id)
        if job_id not in self.attestations:
            raise Refusal(self.attestation_state)
        return self.attestations[job_id]

    async def wait_attestation(self, tenant: str, job_id: str, seconds: float) -> None:
        del tenant
        with anyio.move_on_after(seconds):
            while job_id not in self.attestations and not self.shutting_down:
                await anyio.sleep(0.01)

    def tenant_status(self, tenant: str) -> TenantStatus:
        queued = [
            1 for (owner, _), row in self.jobs.items() if owner == tenant and row.status == "queued"
        ]
        return TenantStatus(queue_depth=len(queued), running=0)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            version="0",
            languages=("python", "bash"),
            execution=ExecutionPosture(
                backend="off",
                isolation_class="none",
                isolated=False,
                private_rootfs=False,
                dedicated_bootstrap=False,
                seccomp=False,
                networking="host",
                controls=(),
                limit_enforcement=LimitEnforcement(wall=True),
            ),
            limits=CapabilityLimits.compiled(mem_mb_max=1024, concurrent_mem_mb_max=4096),
            features=Features(result_wait=True),
            attestations=AttestationCapabilities(),
        )

    async def storage_probe(self) -> bool:
        return self.storage_answers


class Answer:
    """A parsed response."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) < 2, f"{name} is repeated"
        return found[0] if found else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"code", "message", "request_id", "retryable"}
        assert self.header("content-type") == "application/json"
        assert self.json["error"]["request_id"] == self.header("x-request-id")
        code: str = self.json["error"]["code"]
        return code


class Peer:
    """One TCP connection, spoken to in bytes."""

    def __init__(self, address: tuple[str, int], receive_buffer: int | None = None) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = "key-of-a-tenant-a",
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes | None = None,
    ) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: gateway"]
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        if body is not None:
            lines.append(f"content-length: {len(body)}")
            if not any(name == "content-type" for name, _ in headers):
                lines.append("content-type: application/json")
        lines += [f"{name}: {value}" for name, value in headers]
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))

    def head(self) -> tuple[int, list[tuple[str, str]]]:
        while b"\r\n\r\n" not in self.buffer:
            piece = self.socket.recv(65536)
            assert piece, f"the connection ended in a head: {self.buffer!r}"
            self.buffer += piece
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = [
            (name.lower(), value.strip())
            for name, _, value in (line.partition(":") for line in lines[1:])
        ]
        return int(lines[0].split()[1]), headers

    def answer(self, *, without_body: bool = False) -> Answer:
        status, headers = self.head()
        length = 0 if without_body else int(dict(headers)["content-length"])
        while len(self.buffer) < length:
            piece = self.socket.recv(1 << 20)
            assert piece, "the connection ended in a body"
            self.buffer += piece
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Answer(status, headers, body)

    def ended(self, seconds: float) -> bool:
        """Whether the server ends the connection in that time, without another byte."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(PATIENCE)

    def close(self) -> None:
        self.socket.close()


class Gateway:
    """The HTTP side over an engine in memory, on a port of its own."""

    def __init__(
        self,
        portal: BlockingPortal,
        engine: MemoryEngine,
        server: Server,
        services: Services,
        address: tuple[str, int],
    ) -> None:
        self.portal = portal
        self.engine = engine
        self.server = server
        self.services = services
        self.address = address
        self.peers: list[Peer] = []
        self.database: Path | None = None  # of the real engine
        self.trust: Path | None = None  # the certificate, where TLS is spoken

    def connect(self, receive_buffer: int | None = None) -> Peer:
        peer = Peer(self.address, receive_buffer)
        self.peers.append(peer)
        return peer

    def http2(self, **settings: int) -> Http2Peer:
        assert self.trust is not None
        peer = Http2Peer(self.address, trusting(self.trust, "h2"), **settings)
        self.peers.append(peer)  # type: ignore[arg-type]  # to be closed like one
        return peer

    def call(
        self,
        method: str,
        path: str,
        *,
        key: str | None = "key-of-a-tenant-a",
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes | None = None,
    ) -> Answer:
        peer = self.connect()
        peer.request(method, path, key=key, headers=headers, body=body)
        answer = peer.answer(without_body=method == "HEAD")
        peer.close()
        return answer

    def submit(self, spec: object, **options: Any) -> Answer:
        return self.call("POST", "/v1/jobs", body=json.dumps(spec).encode(), **options)

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call on the server's loop."""
        return self.portal.call(function, *arguments)

    def eventually(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.005)
        return condition()


PUBLIC_KEY = PublicKeyView(
    algorithm="Ed25519", key_id="k", public_key_pem="pem", trust_notice="not a trust anchor"
)


def one_scope_keys() -> Callable[[str], Principal | None]:
    """A credential for each scope alone, in the place where later credentials will be looked up."""

    def lookup(token: str) -> Principal | None:
        for scope in Scope:
            if token == f"only-{scope}":
                return Principal(
                    tenant="a",
                    principal_id=f"p-{scope.name}",
                    credential_id="c1",
                    auth_method="api_key",
                    scopes=frozenset({scope}),
                    expires_at_ms=None,
                )
        return None

    return lookup


@contextmanager
def serving(
    portal: BlockingPortal,
    engine: Any,
    *,
    limits: TransportLimits,
    rate: int = 1_000_000,
    clock: Callable[[], float] = time.time,
    public_key: PublicKeyView | None = None,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Iterator[Gateway]:
    keys = parse_api_keys("a:key-of-a-tenant-a,b:key-of-a-tenant-b", production=True)

    def build() -> tuple[Server, Services]:
        services = Services(
            engine=engine,
            pools=Pools(),
            readiness=Readiness(engine),
            authenticator=Authenticator([keys.find, one_scope_keys()]),
            limiter=RateLimiter(rate, clock),
            tickets=TicketBook(now_ms, time.monotonic),
            production=False,
            workers=2,
            tenant_queue_capacity=64,
            public_key=public_key,
            uptime_seconds=lambda: 1,
        )
        return Server(Application(services), limits, tls=tls), services

    server, services = portal.call(build)
    listener = bind(Address(host, 0))
    address = listener.getsockname()[:2]
    serving = portal.start_task_soon(server.serve, listener)
    gateway = Gateway(portal, engine, server, services, address)
    try:
        yield gateway
    finally:
        for peer in gateway.peers:
            peer.close()
        portal.call(server.stop)
        portal.call(server.cut)
        serving.result(PATIENCE)


@contextmanager
def running(**options: Any) -> Iterator[Gateway]:
    with (
        start_blocking_portal() as portal,
        serving(portal, portal.call(MemoryEngine), **options) as gateway,
    ):
        yield gateway


async def open_engine(place: Path) -> tuple[Store, Executor, Engine]:
    store = Store.open(place / "db/rookhold.db", binding=binds)
    (place / "jobs").mkdir(mode=0o700)
    settings = ExecSettings(
        jobs_root=str(place / "jobs"), path=os.environ["PATH"], node="no-such-node"
    )
    executor = choose_backend("off", settings)
    await executor.open()
    engine_settings = EngineSettings(version="0", workers=2, tenant_concurrency=2)
    return (
        store,
        executor,
        Engine(store=store, executor=executor, settings=engine_settings, signer=None, clock=now_ms),
    )


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for a module over the real engine, a real store and the backend `off`."""
    with start_blocking_portal() as portal:
        store, executor, engine = portal.call(open_engine, tmp_path_factory.mktemp("real"))
        started = threading.Event()
        working = portal.start_task_soon(lambda: engine.run(started=started.set))
        assert started.wait(PATIENCE)
        try:
            with serving(portal, engine, limits=TransportLimits(drain_seconds=1.0)) as gateway:
                assert gateway.eventually(lambda: engine.recovered)
                gateway.database = store.path
                yield gateway
        finally:
            portal.call(engine.begin_shutdown)
            working.result(PATIENCE)
            portal.call(executor.close)
            store.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Gateway]]:
    """Start a gateway over an engine in memory, with chosen limits."""
    with ExitStack() as stack:

        def enter(**options: Any) -> Gateway:
            limits = TransportLimits(**({"drain_seconds": 1.0} | options.pop("limits", {})))
            return stack.enter_context(running(limits=limits, **options))

        yield enter


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    return made(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(start: Callable[..., Gateway], certificate: tuple[Path, Path]) -> Callable[..., Gateway]:
    """Start a gateway that speaks TLS alone, as a server with these files does."""
    settings = read_settings(
        {
            "HOME": "/nowhere",
            "ROOKHOLD_TLS_CERT_FILE": str(certificate[0]),
            "ROOKHOLD_TLS_KEY_FILE": str(certificate[1]),
        }
    )

    def enter(**options: Any) -> Gateway:
        gateway = start(tls=listener_tls(settings), **options)
        gateway.trust = certificate[0]
        return gateway

    return enter


@pytest.fixture
def gateway(start: Callable[..., Gateway]) -> Gateway:
    return start()
