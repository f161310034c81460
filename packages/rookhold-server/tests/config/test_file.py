"""The configuration file: what it may say, who wins, and which one is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rookhold_server.config.file import FILE, gathered
from rookhold_server.config.settings import read_database, read_settings
from rookhold_server.config.shown import _DEFAULTS, shown
from rookhold_server.config.variables import INTERNAL, PARSERS
from rookhold_server.errors import InvalidSettingError, SettingError, UnsafeSettingError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.toml"


def environment(file: Path, **more: str) -> dict[str, str]:
    return {"HOME": "/nowhere", FILE: str(file), **more}


def test_the_environment_wins_and_empty_counts_as_unset(file: Path) -> None:
    file.write_text('ROOKHOLD_WORKERS = 3\nROOKHOLD_RATE_PER_MIN = 7\nROOKHOLD_ADDR = "[::1]:80"\n')
    settings = read_settings(
        environment(file, ROOKHOLD_WORKERS="5", ROOKHOLD_RATE_PER_MIN="", ROOKHOLD_ADDR="")
    )
    assert (settings.workers, settings.rate_per_minute) == (5, 7)
    assert str(settings.address) == "[::1]:80"


def test_texts_integers_and_booleans_mean_what_they_mean_in_the_environment(file: Path) -> None:
    file.write_text(
        'ROOKHOLD_WORKERS = "4"\nROOKHOLD_UNSAFE_ALLOW_NAIVE = true\n'
        'ROOKHOLD_TLS_TERMINATED_BY_PROXY = false\nROOKHOLD_TENANT_WEIGHTS = "a=2,b=1"\n'
    )
    settings = read_settings(environment(file))
    assert settings.workers == 4
    assert settings.allow_naive
    assert not settings.tls_terminated_by_proxy
    assert settings.tenant_weights == {"a": 2, "b": 1}


def test_what_was_gathered_names_no_file_and_is_gathered_again_unchanged(file: Path) -> None:
    file.write_text('ROOKHOLD_DB = "/somewhere/jobs.db"\n')
    merged = gathered(environment(file))
    assert FILE not in merged
    assert gathered(merged) == merged
    assert read_database(environment(file)) == Path("/somewhere/jobs.db")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("ROOKHOLD_WORKERS = \n", FILE),
        ("ROOKHOLD_WORKERS = 3\nROOKHOLD_WORKERS = 4\n", FILE),
        ("WORKERS = 3\n", FILE),
        ("ROOKHOLD_WORKER = 3\n", FILE),
        ("[server]\nROOKHOLD_WORKERS = 3\n", FILE),
        (f'{FILE} = "other.toml"\n', FILE),
        ("ROOKHOLD_READY_FD = 3\n", FILE),
        ('ROOKHOLD_API_KEY = "x"\n', FILE),
        ("ROOKHOLD_WORKERS = 3.0\n", "ROOKHOLD_WORKERS"),
        ("ROOKHOLD_WORKERS = [3]\n", "ROOKHOLD_WORKERS"),
        ("ROOKHOLD_WORKERS = 2026-11-30\n", "ROOKHOLD_WORKERS"),
        ('ROOKHOLD_WORKERS = "secret-value"\n', "ROOKHOLD_WORKERS"),
        ('ROOKHOLD_ENV = "secret-value"\n', "ROOKHOLD_ENV"),
    ],
)
def test_what_it_may_not_say_refuses_the_start_without_showing_it(
    file: Path, content: str, named: str
) -> None:
    file.write_text(content)
    with pytest.raises(SettingError) as refused:
        read_settings(environment(file))
    assert named in str(refused.value)
    assert "secret-value" not in str(refused.value)
    assert str(file) not in str(refused.value)


def test_a_file_that_is_none_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=FILE):
        read_settings(environment(file))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSettingError, match="UTF-8"):
        read_settings(environment(file))
    file.write_bytes(b"#" * 300_000)
    with pytest.raises(InvalidSettingError, match="larger"):
        read_settings(environment(file))
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    with pytest.raises(UnsafeSettingError, match="symbolic"):
        read_settings(environment(link))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnsafeSettingError, match="regular"):
        read_settings(environment(tmp_path / "fifo"))


@pytest.mark.parametrize("where", ["environment", "file"])
def test_in_production_the_file_must_be_in_nobody_elses_hands(file: Path, where: str) -> None:
    says = 'ROOKHOLD_ENV = "production"\n' if where == "file" else ""
    more = {} if where == "file" else {"ROOKHOLD_ENV": "production"}
    file.write_text(f"{says}ROOKHOLD_WORKERS = 3\n")
    file.chmod(0o640)
    with pytest.raises(UnsafeSettingError, match=FILE):
        read_settings(environment(file, **more))
    relative = os.path.relpath(file)
    with pytest.raises(UnsafeSettingError, match="absolute"):
        read_settings(environment(Path(relative), **more))


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("ROOKHOLD_DB = " + "[" * 100_000, FILE),
        ("ROOKHOLD_DB = " + "[" * 2000 + "]" * 2000, FILE),
        ("ROOKHOLD_WORKERS = " + "7" * 5000, FILE),
        ("ROOKHOLD_WORKERS = 0x" + "7" * 5000, "ROOKHOLD_WORKERS"),
    ],
)
def test_what_python_itself_cannot_hold_is_refused_as_any_other_fault(
    file: Path, text: str, variable: str
) -> None:
    file.write_text(text)
    with pytest.raises(InvalidSettingError) as refused:
        shown(environment(file))
    assert str(refused.value).startswith(f"{variable}: ")
    assert "777" not in str(refused.value)


def test_in_production_what_counts_is_the_file_that_was_judged(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody puts another in its place between the first look, at `ROOKHOLD_ENV`, and it."""
    contents = {False: b"ROOKHOLD_WORKERS = 66\n", True: b"ROOKHOLD_WORKERS = 2\n"}
    monkeypatch.setattr(
        "rookhold_server.config.file._read", lambda _path, *, strict: contents[strict]
    )
    assert gathered(environment(file, ROOKHOLD_ENV="production"))["ROOKHOLD_WORKERS"] == "2"
    assert gathered(environment(file))["ROOKHOLD_WORKERS"] == "66"


def test_every_setting_is_shown_and_every_default_is_one_of_a_setting() -> None:
    settings = shown({"HOME": "/nowhere"})
    assert {each.name for each in settings} == PARSERS.keys() - INTERNAL
    assert PARSERS.keys() - INTERNAL >= _DEFAULTS.keys()
    assert {each.source for each in settings} == {"default", "unset"}
    assert all((each.value is None) == (each.source == "unset") for each in settings)
