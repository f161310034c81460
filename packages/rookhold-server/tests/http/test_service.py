"""Health, readiness, status and capabilities."""

from typing import Any

import pytest


def test_healthz_is_exact_public_and_uncacheable(gateway: Any) -> None:
    answer = gateway.call("GET", "/healthz", key=None)
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert (answer.header("cache-control"), answer.header("pragma")) == ("no-store", None)


def test_readyz_names_the_first_thing_in_the_way(gateway: Any) -> None:
    engine, readiness = gateway.engine, gateway.services.readiness
    engine.recovered = False

    def code() -> str:
        answer = gateway.call("GET", "/readyz", key=None)
        assert answer.status == 503
        assert answer.header("retry-after") == "1"
        assert (answer.header("cache-control"), answer.header("pragma")) == ("no-store", None)
        found: str = answer.code
        return found

    assert code() == "startup_recovery"
    engine.recovered = True
    assert code() == "storage_unavailable"
    gateway.do(readiness.probe)
    assert gateway.call("GET", "/readyz", key=None).body == b'{"ok":true}'
    gateway.do(engine.begin_shutdown)
    assert code() == "shutting_down"


def test_storage_not_seen_for_ten_seconds_is_not_ready(
    gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    readiness = gateway.services.readiness
    monkeypatch.setattr(readiness, "_clock", lambda: now[0])
    gateway.do(readiness.probe)
    now[0] += 10
    assert readiness.refusal() is None
    now[0] += 0.1
    assert readiness.refusal() == "storage_unavailable"


def test_a_storage_that_says_no_is_not_ready_at_once(gateway: Any) -> None:
    readiness = gateway.services.readiness
    gateway.do(readiness.probe)
    gateway.engine.storage_answers = False
    gateway.do(readiness.probe)
    assert readiness.refusal() == "storage_unavailable"
    gateway.engine.storage_answers = True
    gateway.do(readiness.probe)
    assert readiness.refusal() is None


def test_the_readiness_monitor_ends_promptly_at_shutdown(gateway: Any) -> None:
    watching = gateway.portal.start_task_soon(gateway.services.readiness.watch)
    assert gateway.eventually(lambda: gateway.services.readiness.storage_ready)
    gateway.do(gateway.engine.begin_shutdown)
    watching.result(1)


def test_status_says_development_capacity_and_an_empty_queue(gateway: Any) -> None:
    gateway.engine.add("b", "queued")
    status = gateway.call("GET", "/v1/status").json
    assert status["environment"] == "development"
    assert status["sandbox"] == status["execution"]["backend"] == "off"
    assert status["scheduler"] == {
        "workers": 2,
        "queue_capacity": 64,
        "queue_depth": 0,
        "running": 0,
        "shutting_down": False,
    }
    assert status["storage_ready"] is False


def test_capabilities_are_the_engines(gateway: Any) -> None:
    answer = gateway.call("GET", "/v1/capabilities").json
    assert answer["execution"]["networking"] == "host"
    assert answer["languages"] == ["python", "bash"]
