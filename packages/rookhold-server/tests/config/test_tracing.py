"""Where traces go is said in full, or not at all; what is sent along is shown to nobody."""

from __future__ import annotations

import sys

import pytest

from rookhold_server.config.settings import read_settings
from rookhold_server.config.shown import shown
from rookhold_server.errors import SettingError
from rookhold_server.tracing.opening import open_tracer
from rookhold_server.tracing.spans import UNTRACED

HOME = {"HOME": "/home/nobody"}
ENDPOINT, HEADERS = "ROOKHOLD_OTEL_ENDPOINT", "ROOKHOLD_OTEL_HEADERS"
SAMPLE = "ROOKHOLD_OTEL_SAMPLE_PERCENT"
GOOD = {ENDPOINT: "https://collector.example"}


def test_without_an_endpoint_there_are_no_traces_and_no_sdk() -> None:
    settings = read_settings(HOME)
    assert settings.tracing is None
    assert open_tracer(settings.tracing, "1") is UNTRACED


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://collector.example",
        "https://collector.example:4318/of/ours/",
        "http://localhost:4318",
        "http://127.0.0.1:4318",
        "http://[::1]:4318",
    ],
)
def test_an_endpoint_is_behind_tls_or_on_this_host(endpoint: str) -> None:
    tracing = read_settings(HOME | {ENDPOINT: endpoint}).tracing
    assert tracing is not None
    assert (tracing.endpoint, tracing.headers, tracing.sample_percent) == (endpoint, {}, 100)


def test_headers_are_taken_apart_and_shown_to_nobody() -> None:
    given = HOME | GOOD | {HEADERS: "X-Key=a-secret==, x-team=a b", SAMPLE: "7"}
    settings = read_settings(given)
    assert settings.tracing is not None
    assert settings.tracing.headers == {"x-key": "a-secret==", "x-team": "a b"}
    assert settings.tracing.sample_percent == 7
    assert "a-secret" not in repr(settings)
    told = {each.name: (each.value, each.source) for each in shown(given)}
    assert told[HEADERS] == ("<hidden>", "environment")
    assert told[ENDPOINT] == (GOOD[ENDPOINT], "environment")
    assert {each.name: each.value for each in shown(HOME | GOOD)}[SAMPLE] == "100"
    assert {each.name: each.source for each in shown(HOME)}[SAMPLE] == "unset"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("https://collector.example:4318/v1/a-secret", "https://collector.example:4318/<hidden>"),
        ("https://collector.example/", "https://collector.example/"),
    ],
)
def test_the_path_of_an_endpoint_is_shown_to_nobody(given: str, seen: str) -> None:
    told = {each.name: each.value for each in shown(HOME | {ENDPOINT: given})}
    assert told[ENDPOINT] == seen


@pytest.mark.parametrize(
    ("settings", "code", "name"),
    [
        *(
            ({ENDPOINT: text}, "setting_invalid", ENDPOINT)
            for text in (
                "http://collector.example:4318",
                "http://127.0.0.1.example",
                "https://user:word@collector.example",
                "https://collector.example?a=secret",
                "https://collector.example#secret",
                "https://",
                "https://collector.example:port",
                "https://collector.example/\n",
                "grpc://localhost:4317",
                "collector.example:4318",
            )
        ),
        *(
            (GOOD | {HEADERS: text}, "setting_invalid", HEADERS)
            for text in ("secret", "=secret", "a=", "a=1,a=2", "a=1,A=2", "a b=1", "a=\x7f", ",")
        ),
        *(
            (GOOD | {SAMPLE: text}, "setting_invalid", SAMPLE)
            for text in ("0", "101", "-1", "0.5", "ten")
        ),
        ({HEADERS: "x-key=secret"}, "setting_required", ENDPOINT),
        ({SAMPLE: "10"}, "setting_required", ENDPOINT),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_alone(
    settings: dict[str, str], code: str, name: str
) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings(HOME | settings)
    assert (caught.value.code, caught.value.variable) == (code, name)
    assert "secret" not in str(caught.value)


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rookhold_server.tracing.export", None)
    with pytest.raises(SettingError) as caught:
        open_tracer(read_settings(HOME | GOOD).tracing, "1")
    assert (caught.value.code, caught.value.variable) == ("setting_required", ENDPOINT)
    assert "rookhold-server[otel]" in str(caught.value)
