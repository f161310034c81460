"""Running a job and what is said about it: the lines of the acceptance list, by their numbers.

X8 and X9, for hostile programs, are in `tests/reports` and `tests/hostile`, on every backend that
confines. Nothing here is hostile: some of it runs on `off`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import apsw
import msgspec
import pytest
from asking import Caller, Ran
from faults.victims import launcher_of
from gateway import Gateway, eventually
from inside import KEY, Inside, inside
from isolating import private_place

from rookhold_exec.executor import Provenance
from rookhold_server import startup
from rookhold_store import StorageUnavailableError, Store
from rookhold_store.operations import Append
from rookhold_types.isolation import IsolationClass
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 60
MIB = 1024 * 1024
RECORD = 16_384
BOTH = ["ours", pytest.param("confined", marks=pytest.mark.linux_ns)]


@pytest.fixture(params=BOTH)
def anywhere(request: pytest.FixtureRequest) -> Caller:
    caller: Caller = request.getfixturevalue(request.param)
    return caller


def printed(caller: Caller, content: bytes, stream: int = 1) -> Ran:
    """Run a program that prints exactly these bytes, which it gets as a file."""
    given = {"path": "input/it", "content_base64": base64.b64encode(content).decode()}
    code = (
        "import os\nleft = open('input/it', 'rb').read()\n"
        f"while left: left = left[os.write({stream}, left):]"
    )
    ran = caller.ran("python", code, files=[given])
    assert ran.ended == ("succeeded", 0, None)
    return ran


def records(caller: Caller, job_id: str, stream: str = "stdout") -> list[dict[str, Any]]:
    return [event["data"] for event in caller.events(job_id) if event["kind"] == stream]


def kinds(caller: Caller, job_id: str) -> list[str]:
    return [event["kind"] for event in caller.events(job_id)]


# -- output ----------------------------------------------------------------------------------------


def test_x1_the_folded_text_equals_what_was_printed(anywhere: Caller) -> None:
    text = "one\r\n\r\n\n\ntwo\0\n\0\n\x85\u2028 é 🂡\r\nno end"
    result = printed(anywhere, text.encode()).result
    assert result["stdout"] == text
    assert "stdout_base64" not in result


def test_x2_bytes_that_are_no_text_are_kept_beside_what_can_be_shown(anywhere: Caller) -> None:
    content = b"good\nbad \xff\xfe \xc3\nlast \xe2\x82"
    ran = printed(anywhere, content, stream=2)
    good, bad, last = records(anywhere, ran.job_id, "stderr")
    assert good == {"line": "good", "eol": True}
    assert (bad["line"], bad["eol"]) == ("bad \ufffd\ufffd \ufffd", True)
    assert base64.b64decode(bad["raw_base64"]) == b"bad \xff\xfe \xc3"
    assert (last["line"], last["eol"]) == ("last \ufffd", False)
    assert base64.b64decode(last["raw_base64"]) == b"last \xe2\x82"
    assert base64.b64decode(ran.result["stderr_base64"]) == content
    assert ran.result["stderr"] == content.decode("utf-8", "replace")
    assert "stdout_base64" not in ran.result


def test_x3_a_record_of_the_largest_size_is_one_event_and_a_larger_is_split_between_characters(
    ours: Caller,
) -> None:
    whole = printed(ours, b"x" * RECORD + b"\n")
    assert records(ours, whole.job_id) == [{"line": "x" * RECORD, "eol": True}]
    text = "€" * (RECORD // 3 + 1)
    assert len(text.encode()) > RECORD
    split = printed(ours, text.encode() + b"\n")
    first, second = records(ours, split.job_id)
    assert first == {"line": "€" * (RECORD // 3), "eol": False}
    assert second == {"line": "€", "eol": True}
    assert split.result["stdout"] == text + "\n"


def memory_kib(gateway: Gateway) -> int:
    """What the server holds of the host's memory by itself."""
    assert gateway.process is not None
    status = Path(f"/proc/{gateway.process.pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "Private_" in line)


def test_x4_output_beyond_the_limits_is_cut_exactly_and_all_of_it_is_counted(
    plain: Gateway, ours: Caller
) -> None:
    flood = 24 * MIB
    code = f"import os\nfor n in range({flood // 65536}): os.write(1, bytes([65 + n % 26]) * 65536)"
    printed_ = b"".join(bytes([65 + n % 26]) * 65536 for n in range(flood // 65536))
    held = []
    for _ in range(4):
        ran = ours.ran("python", code)
        assert ran.ended == ("succeeded", 0, None)
        held.append(memory_kib(plain))
    assert held[3] - held[1] < flood // 1024  # the first two warm it up
    output = ran.receipt["output"]
    assert ran.result["stdout"].encode() == printed_[:MIB]
    assert ran.result["truncated"] is True
    assert output["stdout_bytes"] == MIB
    assert output["stdout_bytes_seen"] == flood
    assert output["stdout_sha256"] == hashlib.sha256(printed_[:MIB]).hexdigest()
    assert output["stdout_seen_sha256"] == hashlib.sha256(printed_).hexdigest()
    assert kinds(ours, ran.job_id).count("truncated") == 1

    lines = "".join(f"{n}\n" for n in range(10_500)).encode()
    ran = printed(ours, lines)
    kept = "".join(f"{n}\n" for n in range(10_000))
    assert (ran.result["stdout"], ran.result["truncated"]) == (kept, True)
    output = ran.receipt["output"]
    assert (output["stdout_bytes"], output["stdout_bytes_seen"]) == (len(kept), len(lines))
    assert output["stdout_seen_sha256"] == hashlib.sha256(lines).hexdigest()
    page = ours.get(f"/v1/jobs/{ran.job_id}/replay?after=10000").json["events"]
    assert [event["kind"] for event in page].count("truncated") == 1


# -- faults of the store ---------------------------------------------------------------------------


def test_x5_after_a_failed_commit_the_receipt_speaks_only_of_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Store.submit
    appended = 0

    def unlucky(store: Store, op: Any) -> Future[Any]:
        nonlocal appended
        appended += isinstance(op, Append)
        if isinstance(op, Append) and appended == 2:
            failed: Future[Any] = Future()
            failed.set_exception(StorageUnavailableError("no answer"))
            return failed
        return submit(store, op)

    with inside(tmp_path / "home") as gateway, closing(Caller(gateway.address, KEY)) as caller:
        monkeypatch.setattr(Store, "submit", unlucky)
        ran = caller.ran("bash", "for n in $(seq 900); do echo line $n; done")
        found = kinds(caller, ran.job_id)
    everything = "".join(f"line {n}\n" for n in range(1, 901))
    stored = ran.result["stdout"]
    assert appended >= 2
    assert ran.ended == ("succeeded", 0, None)
    assert everything.startswith(stored)
    assert 0 < len(stored) < len(everything)
    output = ran.receipt["output"]
    assert output["stdout_sha256"] == hashlib.sha256(stored.encode()).hexdigest()
    assert (output["stdout_bytes"], output["stdout_bytes_seen"]) == (len(stored), len(everything))
    assert ran.receipt["evidence_complete"] is False
    assert (found.count("truncated"), ran.result["truncated"]) == (1, True)


@pytest.fixture
def held_back(tmp_path: Path) -> Iterator[tuple[Inside, Callable[[], None]]]:
    """A gateway whose store answers no write of output before it is told to."""
    with inside(tmp_path / "home") as gateway:
        storage = gateway.gateway.engine._storage
        run = storage.run
        gate: anyio.Event = gateway.do(anyio.Event)

        async def late(operation: Any, **options: Any) -> Any:
            if isinstance(operation, Append) and operation.events[0][0] == "stdout":
                await gate.wait()
            return await run(operation, **options)

        storage.run = late  # type: ignore[method-assign]
        yield gateway, lambda: gateway.do(gate.set)


@pytest.mark.parametrize("ended_by", ["wall limit", "cancel"])
def test_x12_a_saturated_writer_holds_the_pipe_back_and_limit_and_cancel_still_act(
    held_back: tuple[Inside, Callable[[], None]], ended_by: str
) -> None:
    gateway, let_go = held_back
    code = "for n in range(9000): print('x' * 100)\nimport time; time.sleep(60)"
    wall = 1 if ended_by == "wall limit" else 60
    with closing(Caller(gateway.address, KEY)) as caller:
        job_id = caller.accepted("python", code, limits={"wall_seconds": wall})
        if ended_by == "cancel":
            assert eventually(SECONDS, lambda: "started" in kinds(caller, job_id))
            time.sleep(0.5)  # it prints, and the writer does not answer
            assert caller.call("DELETE", f"/v1/jobs/{job_id}").json["cancellation_requested"]
        time.sleep(1.2)
        assert "stdout" not in kinds(caller, job_id)
        let_go()
        result = caller.result(job_id).json
        receipt = caller.get(f"/v1/jobs/{job_id}").json["receipt"]
    expected = ("timed_out", "wall-clock") if wall == 1 else ("cancelled", "cancelled")
    assert (result["status"], receipt["killed_by"]) == expected
    assert receipt["duration_ms"] < 10_000
    assert receipt["evidence_complete"] is True
    output = receipt["output"]
    assert result["stdout"] == ("x" * 100 + "\n") * (len(result["stdout"]) // 101)
    assert output["stdout_sha256"] == hashlib.sha256(result["stdout"].encode()).hexdigest()
    # The pipe took some of what was printed, and of that nothing is lost.
    assert 0 < output["stdout_bytes_seen"] == output["stdout_bytes"] < 9000 * 101


# -- what is claimed -------------------------------------------------------------------------------


def no_place(gateway: Gateway) -> None:
    """On `off` every job has a directory."""
    shutil.rmtree(gateway.jobs_root)


def no_descriptors(gateway: Gateway) -> None:
    assert gateway.process is not None
    launcher = launcher_of(gateway.process.pid)
    assert launcher is not None
    hard = resource.prlimit(launcher, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(launcher, resource.RLIMIT_NOFILE, (3, hard))


@pytest.mark.parametrize(
    ("sandbox", "spoil"),
    [
        ("off", no_place),
        pytest.param("namespaces-dev", no_descriptors, marks=pytest.mark.linux_ns),
    ],
)
def test_x6_a_run_that_fails_before_ready_claims_nothing_and_keeps_nothing_of_the_job(
    tmp_path: Path, sandbox: str, spoil: Callable[[Gateway], None]
) -> None:
    with (
        Gateway(tmp_path / "home", sandbox=sandbox, ROOKHOLD_ATTESTATION_KEY_FILE="") as gateway,
        closing(Caller(gateway.address, gateway.api_key)) as caller,
    ):
        spoil(gateway)
        ran = caller.ran("bash", "echo the code", stdin="the stdin")
        assert caller.get("/readyz").status == 200
    assert (ran.result["status"], ran.result["exit_code"]) == ("error", None)
    receipt = ran.receipt
    assert receipt["bootstrap_ready"] is False
    for name in ("isolated", "seccomp", "private_rootfs", "dedicated_bootstrap"):
        assert receipt[name] is False, name
    for name in ("network_allowed", "networking", "runtime_version", "rootfs_sha256"):
        assert receipt[name] is None, name
    assert (receipt["isolation_class"], receipt["controls"]) == ("none", [])
    assert set(receipt["effective_limits"].values()) == {None}
    assert set(receipt["limit_enforcement"].values()) == {False}
    effective = ran.detail["effective_spec"]
    assert effective["isolation_class"] is None
    assert set(effective["limits"].values()) == {None}
    db = apsw.Connection(str(gateway.database))
    try:
        [(stored,)] = db.execute("SELECT effective_spec_json FROM jobs").fetchall()
    finally:
        db.close()
    for text in ("the code", "the stdin"):
        assert text not in repr(receipt)
        assert text not in stored
    assert ran.detail["requested_spec"]["stdin"] == "the stdin"


class Claiming:
    """The real executor, except for the class that it offers and what it says it observed."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.offers = IsolationClass.NONE
        self.observes: Provenance | None = None
        self.ends_as: JobStatus | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def posture(self) -> Any:
        return msgspec.structs.replace(self._real.posture, isolation_class=self.offers)

    async def start(self, plan: Any) -> Any:
        return _Claimed(await self._real.start(plan), self)

    async def start_when(self, plan: Any, permit: Any) -> Any:
        return _Claimed(await self._real.start_when(plan, permit), self)


class _Claimed:
    def __init__(self, real: Any, claims: Claiming) -> None:
        self._real = real
        self._claims = claims

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def wait(self) -> Any:
        report = await self._real.wait()
        changes: dict[str, Any] = {"provenance": self._claims.observes}
        if self._claims.ends_as is not None:
            changes |= {"status": self._claims.ends_as, "exit_code": None}
        return msgspec.structs.replace(report, **changes)


READY = msgspec.structs.replace(Provenance.never_ready("any"), bootstrap_ready=True)
NEVER = Provenance.never_ready("any")
SHARED, APPLICATION = IsolationClass.LINUX_SHARED_KERNEL, IsolationClass.GVISOR_APPLICATION_KERNEL
NONE = IsolationClass.NONE
OBSERVED: list[tuple[IsolationClass, Provenance, JobStatus | None, bool]] = [
    (SHARED, msgspec.structs.replace(READY, isolation_class=APPLICATION), None, False),
    (APPLICATION, msgspec.structs.replace(READY, isolation_class=SHARED), None, True),
    (NONE, NEVER, None, True),
    (NONE, NEVER, JobStatus.FAILED, True),
    (NONE, NEVER, JobStatus.CANCELLED, False),
    (APPLICATION, NEVER, JobStatus.CANCELLED, False),
    (APPLICATION, NEVER, JobStatus.ERROR, False),
]


def test_x7_what_was_observed_is_held_against_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Claiming] = []
    choose = startup.choose_backend

    def claiming(*arguments: Any) -> Any:
        made.append(Claiming(choose(*arguments)))
        return made[0]

    monkeypatch.setattr(startup, "choose_backend", claiming)
    with inside(tmp_path / "home") as gateway, closing(Caller(gateway.address, KEY)) as caller:
        (executor,) = made
        executor.offers = IsolationClass.CONFIDENTIAL_VM
        for minimum, observed, ends_as, contradiction in OBSERVED:
            executor.observes, executor.ends_as = observed, ends_as
            wanted = {"minimum_isolation": minimum.value}
            ran = caller.ran("bash", "true", requirements=wanted)
            case = (minimum, observed.isolation_class, ends_as)
            rules = [violation["rule"] for violation in ran.result["violations"]]
            if not contradiction:
                assert ran.result["status"] == (ends_as or "succeeded"), case
                assert "minimum_isolation_observation_mismatch" not in rules, case
                continue
            exit_code = None if ends_as else 0  # kept as it was
            mismatch = "minimum_isolation_observation_mismatch"
            assert ran.ended == ("error", exit_code, mismatch), case
            assert mismatch in rules, case


# -- the host, and the launcher --------------------------------------------------------------------

WITHOUT_NAMESPACES = (
    *("unshare", "--user", "--map-user=1000", "--keep-caps", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all "$@"',
    "sh",
    *("--ambient-caps=-all", "--bounding-set=-all"),
)


@pytest.fixture
def private() -> Iterator[Path]:
    with private_place() as place:
        yield place


@pytest.mark.linux_ns
@pytest.mark.root
def test_x10_without_user_namespaces_auto_is_weaker_and_says_why_or_refuses_in_production(
    private: Path,
) -> None:
    gateway = Gateway(private / "home", sandbox="auto", ROOKHOLD_ATTESTATION_KEY_FILE="")
    command = (*WITHOUT_NAMESPACES, sys.executable, "-m", "rookhold_server")
    ready, tells = os.pipe()
    environ = gateway.environment() | {"ROOKHOLD_READY_FD": str(tells)}
    with ExitStack() as stack:
        with gateway.log.open("wb") as log:
            process = subprocess.Popen(command, env=environ, stderr=log, pass_fds=(tells,))
        stack.callback(process.wait, SECONDS)
        stack.callback(process.terminate)
        os.close(tells)
        gateway.process = process
        gateway.await_ready(ready)
        caller = stack.enter_context(closing(Caller(gateway.address, gateway.api_key)))
        execution = caller.get("/v1/capabilities").json["execution"]
        assert (execution["backend"], execution["isolation_class"]) == ("off", "none")
        assert (execution["controls"], execution["networking"]) == ([], "host")
        assert caller.ran("bash", "echo here").result["stdout"] == "here\n"
    [line] = [line for line in gateway.log.read_text().splitlines() if "backend=off" in line]
    assert "no sandbox: this host offers no namespaces" in line
    assert "user.max_user_namespaces is 0" in line

    environ |= {
        "ROOKHOLD_ENV": "production",
        "ROOKHOLD_ATTESTATION_MODE": "off",
        "ROOKHOLD_UNSAFE_ALLOW_NAIVE": "1",
    }
    del environ["ROOKHOLD_READY_FD"]
    refused = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert refused.returncode == 1
    told = json.loads(refused.stderr.splitlines()[-1])
    assert told["code"] == "executor_unavailable"
    assert "refused to start" in told["message"]
    assert "gvisor-oci is not configured" in told["message"]
    assert "namespaces+cgroups-v2+private-rootfs is not configured" in told["message"]
    assert str(private) not in refused.stderr


@pytest.mark.linux_ns
def test_x11_a_killed_launcher_costs_its_jobs_and_is_started_again(
    confining: Gateway, confined: Caller
) -> None:
    assert confining.process is not None
    held = [
        confined.accepted("bash", "echo begun; sleep 60", limits={"wall_seconds": 90})
        for _ in range(2)
    ]
    for job_id in held:
        confined.begun(job_id)
    launcher = launcher_of(confining.process.pid)
    assert launcher is not None
    os.kill(launcher, signal.SIGKILL)
    for job_id in held:
        result = confined.result(job_id).json
        assert (result["status"], result["exit_code"]) == ("error", None)
        assert result["stdout"] == "begun\n"

    def back() -> bool:
        ran = confined.ran("bash", "echo back")  # one that comes too early says so
        return bool(ran.result["stdout"] == "back\n")

    assert eventually(SECONDS, back)
    assert launcher_of(confining.process.pid) not in {None, launcher}
    assert confining.process.poll() is None
    assert confined.get("/readyz").status == 200
