"""How a server is watched: the lines O1, O2, O5 and O6 of the acceptance list.

O3 and O4 are in `tests/serve/test_metrics.py`.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from asking import Caller
from gateway import eventually
from inside import KEY, inside
from prometheus_client.parser import text_string_to_metric_families

from rookhold_server.http.app import ROUTES
from rookhold_types.isolation import Control, IsolationClass

if TYPE_CHECKING:
    from pathlib import Path

    from gateway import Gateway

OPERATOR = "a-token-of-the-operator"
INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
GAUGES = {"rookhold_jobs_current", "rookhold_job_lifecycle_owners_current"}


def gauges(caller: Caller) -> dict[str, dict[tuple[str, ...], float]]:
    answer = caller.get("/v1/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    assert answer.headers["cache-control"] == "no-store"
    families = list(text_string_to_metric_families(answer.body.decode()))
    assert all(family.type == "gauge" and family.documentation for family in families)
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in families
    }


def counted(plain: Gateway) -> dict[str, float]:
    """Every sample that the operator is shown."""
    with closing(Caller(plain.address, OPERATOR)) as operator:
        text = operator.get("/metrics").body.decode()
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_o1_a_fresh_development_server_is_ready_and_honest(tmp_path: Path) -> None:
    with (
        inside(tmp_path / "home", MAX_JOB_MEM_MB="640", MEMORY_BUDGET_MB="2048") as server,
        closing(Caller(server.address, KEY)) as caller,
    ):
        assert caller.get("/readyz").json == {"ok": True}
        assert caller.get("/v1/whoami").json["tenant"] == "acme"
        capabilities = caller.get("/v1/capabilities").json
        execution = capabilities["execution"]
        assert execution["backend"] == "off"
        assert execution["isolation_class"] == IsolationClass.NONE
        assert execution["networking"] == "host"
        assert not any(execution[name] for name in ("isolated", "private_rootfs", "seccomp"))
        assert "network-namespace" not in execution["controls"]
        assert set(execution["controls"]) <= set(Control)
        assert capabilities["limits"]["mem_mb_max"] == 640
        assert capabilities["limits"]["concurrent_mem_mb_max"] == 2048
        status = caller.get("/v1/status").json
        assert status["environment"] == "development"
        assert status["sandbox"] == execution["backend"]
        assert status["execution"] == execution
        assert status["storage_ready"] is True
        scheduler = status["scheduler"]
        assert (scheduler["queue_capacity"], scheduler["queue_depth"]) == (64, 0)
        assert (scheduler["running"], scheduler["shutting_down"]) == (0, False)


def test_o2_a_tenant_sees_its_two_gauges_and_the_operator_what_was_done(
    plain: Gateway, ours: Caller, theirs: Caller
) -> None:
    request = "rookhold_http_server_requests_total"
    template = [("method", "GET"), ("route", "/v1/jobs/{job_id}"), ("status_class", "2xx")]
    submission = [("method", "POST"), ("route", "/v1/jobs"), ("status_class", "2xx")]
    taken = f"rookhold_jobs_submitted_total{[('language', 'bash')]}"
    before, mine, other = counted(plain), gauges(ours), gauges(theirs)
    assert set(mine) == set(other) == GAUGES

    done = [ours.ran("bash", "true").job_id for _ in range(2)]
    failed = ours.ran("bash", "exit 3").job_id
    ours.get(f"/v1/jobs/{failed}")
    after, now = counted(plain), gauges(ours)

    grown = {
        status: now["rookhold_jobs_current"][(status,)]
        - mine["rookhold_jobs_current"].get((status,), 0)
        for status in ("succeeded", "failed")
    }
    assert grown == {"succeeded": 2, "failed": 1}
    assert gauges(theirs)["rookhold_jobs_current"] == other["rookhold_jobs_current"]
    assert 0 not in now["rookhold_jobs_current"].values()
    assert after[f"{request}{template}"] - before[f"{request}{template}"] == 4
    assert after[f"{request}{submission}"] - before[f"{request}{submission}"] == 3
    assert after[taken] - before[taken] == 3
    text = "".join(after) + ours.get("/v1/metrics").body.decode()
    assert all(name.startswith("rookhold_") for name in after)
    assert not [secret for secret in (*done, failed, "local", OPERATOR) if secret in text]


def test_o2_the_gauges_follow_jobs_that_wait_run_and_end(tmp_path: Path) -> None:
    with inside(tmp_path / "home", WORKERS="1") as server:
        ours, theirs = Caller(server.address, KEY), Caller(server.address, f"{KEY}-other")
        with closing(ours), closing(theirs):
            assert gauges(ours) == {
                "rookhold_jobs_current": {},
                "rookhold_job_lifecycle_owners_current": {(): 0},
            }
            running = ours.accepted("bash", "echo; sleep 60")
            ours.begun(running)
            waiting = ours.accepted("bash", "true")
            assert gauges(ours) == {
                "rookhold_jobs_current": {("running",): 1, ("queued",): 1},
                "rookhold_job_lifecycle_owners_current": {(): 2},
            }
            assert gauges(theirs)["rookhold_job_lifecycle_owners_current"] == {(): 0}
            for job_id in (waiting, running):
                ours.call("DELETE", f"/v1/jobs/{job_id}")
            assert ours.result(running).json["status"] == "cancelled"

            def released() -> bool:
                return gauges(ours)["rookhold_job_lifecycle_owners_current"] == {(): 0}

            assert eventually(60, released)
            assert gauges(ours)["rookhold_jobs_current"] == {("cancelled",): 2}


def test_o5_the_monitor_ends_promptly_with_the_server_and_what_is_stale_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        inside(tmp_path / "home") as server,
        closing(Caller(server.address, KEY)) as caller,
    ):
        gateway = server.gateway
        readiness = gateway.readiness
        assert caller.get("/readyz").status == 200
        hanging = anyio.Event()

        async def never() -> bool:
            hanging.set()
            await anyio.sleep_forever()
            raise AssertionError

        monkeypatch.setattr(gateway.engine, "storage_probe", never)

        async def hang() -> None:  # whatever probe is under way belongs to the monitor at work
            with anyio.fail_after(60):
                await hanging.wait()

        server.do(hang)
        assert caller.get("/readyz").status == 200, "the last answer holds for ten seconds"
        monkeypatch.setattr(readiness, "_clock", lambda: time.monotonic() + 10.5)
        stale = caller.get("/readyz")
        assert stale.refusal == (503, "storage_unavailable")
        assert stale.headers["retry-after"] == "1"
        assert stale.headers["cache-control"] == "no-store"
        assert caller.get("/v1/status").json["storage_ready"] is False
        assert caller.get("/healthz").status == 200

        async def watched() -> float:
            began = time.monotonic()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(readiness.watch)
                gateway.engine.begin_shutdown()
            await readiness.watch()  # shutdown has begun before it
            return time.monotonic() - began

        assert server.do(watched) < 5
        assert caller.get("/readyz").refusal == (503, "shutting_down")


@pytest.fixture(params=[path for path in ("/", "/docs") if path in ROUTES])
def page(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_o6_the_answer_to_whether_it_lives_is_exact(ours: Caller) -> None:
    answer = ours.call("GET", "/healthz")
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert answer.headers["cache-control"] == "no-store"


def test_o6_the_policy_of_a_page_lets_pass_just_what_is_in_it(ours: Caller, page: str) -> None:
    answer = ours.call("GET", page)
    assert answer.status == 200
    blocks: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in INLINE.findall(answer.body.decode()):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        blocks[kind].append(f"'sha256-{digest}'")
    policy = dict(
        directive.strip().split(" ", 1)
        for directive in answer.headers["content-security-policy"].split(";")
    )
    for kind, expected in blocks.items():
        assert policy.get(f"{kind}-src", "").split() == expected, kind
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert not re.search(rb"<(script|style) [^>]|<link|\son[a-z]+=|javascript:", answer.body)
