"""Every command that docs/integrity.md shows works as shown, beside a real gateway and after it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway

from rookhold_cli.exits import Exit
from rookhold_server.config.variables import PARSERS
from rookhold_store.testing.specimen import unguarded
from rookhold_store.verify import unproved

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).resolve().parent.parent / "docs/integrity.md").read_text("utf-8")
SHELL = [text.strip() for text in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]
STOPPED = next(number for number, text in enumerate(SHELL) if text.startswith("mkdir"))
PATIENCE = 120


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tmp_path / "home", ROOKHOLD_WORKERS="2")
    made.database = tmp_path / "lib" / "rookhold.db"
    yield made.start()
    if made.process is not None:
        made.stop()


def shell(line: str, gateway: Gateway) -> subprocess.CompletedProcess[str]:
    folder = gateway.home.parent
    text = line.replace("/var/lib/rookhold", str(folder / "lib"))
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text.replace("/backup", str(folder / "backup"))],
        cwd=folder,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(gateway.home),
            "LANG": "C.UTF-8",
            "ROOKHOLD_DB": str(gateway.database),
            **gateway.for_clients(),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def done(line: str, gateway: Gateway) -> str:
    ended = shell(line, gateway)
    assert ended.returncode == 0, (line, ended.stdout, ended.stderr)
    return ended.stdout


def test_its_commands_work_beside_a_gateway_and_after_it(gateway: Gateway) -> None:
    (gateway.home.parent / "backup").mkdir()
    done("rookhold run python -c 'print(6*7)'", gateway)
    said = {line: done(line, gateway) for line in SHELL[:STOPPED]}
    assert "1 succeeded" in said["rookhold db stats"]
    assert json.loads(said["rookhold db verify --json"])["sound"] is True
    assert "compared with 3 documents" in said["rookhold db verify --receipt rookhold-evidence"]
    refused = shell(SHELL[-1], gateway)
    assert (refused.returncode, "database_locked" in refused.stderr) == (77, True)
    gateway.stop()
    for line in SHELL[STOPPED:]:
        done(line, gateway)
    gateway.start()
    assert "1 succeeded" in done("rookhold db stats", gateway)
    assert "42" in done("rookhold result $(rookhold jobs | cut -f1)", gateway)


def test_an_edit_is_found_and_named_as_it_says(gateway: Gateway) -> None:
    done("rookhold run python -c 'print(6*7)' && rookhold run python -c 'print(8)'", gateway)
    gateway.stop()
    assert done("rookhold db verify --receipt rookhold-evidence", gateway)
    with unguarded(gateway.database) as db:
        db.execute("UPDATE events SET data_json = replace(data_json, '42', '43')")
    ended = shell("rookhold db verify", gateway)
    assert ended.returncode == Exit.BAD_EVIDENCE
    shape = r"job \S+, event 3: events\.event_hash: is not the hash of prev_hash, seq, .*"
    assert any(re.fullmatch(shape, line) for line in ended.stdout.splitlines())


def test_what_it_says_cannot_be_proved_is_what_the_command_says() -> None:
    page = " ".join(PAGE.split())
    for sentence in unproved.SENTENCES:
        assert sentence in page


def test_its_settings_and_statuses_exist() -> None:
    named = set(re.findall(r"ROOKHOLD_[A-Z0-9_]+", PAGE))
    assert named <= PARSERS.keys()
    statuses = {int(text) for text in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert statuses == {Exit.OK, Exit.USAGE, Exit.BAD_EVIDENCE, Exit.FILES}
    assert os.EX_IOERR == Exit.FILES
