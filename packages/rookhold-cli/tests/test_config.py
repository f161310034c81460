"""`rookhold config show`: every setting with its source, and no secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Rookhold = Callable[..., "subprocess.CompletedProcess[bytes]"]


def shown(rookhold: Rookhold, **settings: str) -> dict[str, tuple[Any, str]]:
    ended = rookhold("config", "show", "--json", **settings)
    assert ended.returncode == 0, ended.stderr
    listed = json.loads(ended.stdout)["settings"]
    return {each["name"]: (each["value"], each["source"]) for each in listed}


def test_each_setting_tells_its_source_and_a_secret_nothing_else(
    rookhold: Rookhold, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        'ROOKHOLD_WORKERS = 3\nROOKHOLD_LOG_LEVEL = "debug"\n'
        'ROOKHOLD_METRICS_TOKEN = "a-secret-of-the-file"\nROOKHOLD_UNSAFE_ALLOW_NAIVE = true\n'
    )
    settings = shown(
        rookhold,
        ROOKHOLD_CONFIG_FILE=str(file),
        ROOKHOLD_LOG_LEVEL="warning",
        ROOKHOLD_API_KEYS="acme:a-secret-of-the-environment",
    )
    assert settings["ROOKHOLD_WORKERS"] == ("3", "file")
    assert settings["ROOKHOLD_TENANT_CONCURRENCY"] == ("3", "default")
    assert settings["ROOKHOLD_LOG_LEVEL"] == ("warning", "environment")
    assert settings["ROOKHOLD_UNSAFE_ALLOW_NAIVE"] == ("true", "file")
    assert settings["ROOKHOLD_CONFIG_FILE"] == (str(file), "environment")
    assert settings["ROOKHOLD_API_KEYS"] == ("<hidden>", "environment")
    assert settings["ROOKHOLD_METRICS_TOKEN"] == ("<hidden>", "file")
    assert settings["ROOKHOLD_ENV"] == ("development", "default")
    assert settings["ROOKHOLD_USER"] == (None, "unset")
    assert settings["ROOKHOLD_RATE_PER_MIN"] == ("1200", "default")


def test_people_get_a_table_and_no_secret(rookhold: Rookhold) -> None:
    ended = rookhold("config", "show", ROOKHOLD_API_KEYS="acme:a-secret-of-the-environment")
    assert ended.returncode == 0
    assert b"ROOKHOLD_ADDR" in ended.stdout
    assert b"127.0.0.1:7300" in ended.stdout
    assert b"a-secret" not in ended.stdout + ended.stderr


def test_a_misspelt_variable_is_named(rookhold: Rookhold) -> None:
    ended = rookhold("config", "show", ROOKHOLD_WORKER="3")
    assert ended.returncode == 0
    assert b"ROOKHOLD_WORKER is not a setting" in ended.stderr


def test_what_a_start_would_refuse_is_refused_in_the_same_words(rookhold: Rookhold) -> None:
    ended = rookhold("config", "show", ROOKHOLD_WORKERS="many")
    assert ended.returncode == 77
    assert b"ROOKHOLD_WORKERS" in ended.stderr
    assert b"setting_invalid" in ended.stderr
    assert b"many" not in ended.stderr
