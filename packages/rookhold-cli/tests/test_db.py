"""`rookhold db`: what it finds, what it prints, what it refuses with which status."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import apsw
import pytest

from rookhold_cli import counted
from rookhold_store import InstanceLock, Store
from rookhold_store.testing import Jobs, TickingClock
from rookhold_store.testing.lineage import make_old
from rookhold_store.testing.specimen import unguarded

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Rookhold

VERBS = ["verify", "backup", "compact", "stats"]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where a gateway with this test's home would have it."""
    path = tmp_path / "home/.local/state/rookhold/rookhold.db"
    with Store.open(path, clock=TickingClock()) as store:
        jobs = Jobs(store)
        jobs.finished(key="k")
        jobs.finished(tenant="other")
        jobs.running()
        jobs.accept()
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700, exist_ok=True)
    return tmp_path / "home"


def finished_job(database: Path) -> str:
    with closing(apsw.Connection(str(database))) as db:
        statement = "SELECT job_id FROM jobs WHERE status = 'succeeded' ORDER BY job_id"
        return str(db.execute(statement).get[0])  # type: ignore[index]


def receipt(database: Path, job_id: str) -> bytes:
    with closing(apsw.Connection(str(database))) as db:
        statement = "SELECT receipt_json FROM jobs WHERE job_id = ?"
        return str(db.execute(statement, (job_id,)).get).encode()


@pytest.mark.parametrize("verb", VERBS)
def test_every_part_explains_itself_with_examples(rookhold: Rookhold, verb: str) -> None:
    ended = rookhold("db", verb, "--help")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert f"Usage: rookhold db {verb}".encode() in ended.stdout
    assert b"Examples:" in ended.stdout
    assert f"  rookhold db {verb}".encode() in ended.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_without_the_extra_it_is_named(rookhold_without: Rookhold, verb: str) -> None:
    ended = rookhold_without("rookhold_store", "db", verb, "file.db")
    assert ended.returncode == 64
    assert b"pip install 'rookhold-cli[server]'" in ended.stderr


def test_a_sound_database_ends_with_0_and_says_what_cannot_be_proved(
    rookhold: Rookhold, database: Path
) -> None:
    ended = rookhold("db", "verify", str(database))
    assert (ended.returncode, ended.stderr) == (0, b"")
    said = ended.stdout.decode()
    assert said.startswith("4 jobs checked: nothing was found\n")
    assert "a store alone cannot prove:" in said
    assert "no whole job is missing" in said


def test_without_a_path_it_is_the_database_of_a_gateway_started_here(
    rookhold: Rookhold, database: Path, tmp_path: Path
) -> None:
    assert json.loads(rookhold("db", "verify", "--json").stdout)["database"] == str(database)
    moved = tmp_path / "moved.db"
    database.rename(moved)
    ended = rookhold("db", "verify", "--json", ROOKHOLD_DB=str(moved))
    assert json.loads(ended.stdout) | {"cannot_prove": 0} == {
        "database": str(moved),
        "sound": True,
        "jobs": 4,
        "kept_evidence": 0,
        "findings": [],
        "unchecked": [],
        "cannot_prove": 0,
    }
    assert rookhold("db", "verify").returncode == 74


def test_a_finding_names_job_and_event_and_ends_with_65(rookhold: Rookhold, database: Path) -> None:
    job_id = finished_job(database)
    with unguarded(database) as db:
        db.execute("DELETE FROM events WHERE job_id = ? AND seq = 3", (job_id,))
    ended = rookhold("db", "verify")
    assert ended.returncode == 65
    assert f"job {job_id}, event 3: events.seq: 3 is missing".encode() in ended.stdout
    document = json.loads(rookhold("db", "verify", "--json").stdout)
    assert document["sound"] is False
    assert {"place": "events.seq", "job_id": job_id, "seq": 3}.items() <= next(
        item for item in document["findings"] if item["seq"] is not None
    ).items()
    other = rookhold("db", "verify", "--jobs", job_id)
    assert other.returncode == 65
    assert b"not checked: the rest of the file" in other.stdout


def test_one_is_not_many_and_a_job_that_is_not_there_is_a_finding(
    rookhold: Rookhold, database: Path
) -> None:
    ended = rookhold("db", "verify", "--jobs", finished_job(database))
    assert ended.stdout.startswith(b"1 job checked: nothing was found\n")
    ended = rookhold("db", "verify", "--jobs", "01890a5d-ac96-774b-bcce-b302099a8057")
    assert ended.returncode == 65
    assert b"\n1 job checked: 1 finding\n" in ended.stdout


def test_a_receipt_kept_elsewhere_finds_a_job_that_is_missing(
    rookhold: Rookhold, database: Path, tmp_path: Path
) -> None:
    job_id = finished_job(database)
    kept = tmp_path / "kept" / "receipt.json"
    kept.parent.mkdir()
    kept.write_bytes(receipt(database, job_id))
    ended = rookhold("db", "verify", "--receipt", str(kept))
    assert ended.returncode == 0
    assert b"compared with 1 document kept elsewhere" in ended.stdout
    database.unlink()
    Store.open(database).close()
    assert rookhold("db", "verify").returncode == 0
    ended = rookhold("db", "verify", "--receipt", str(kept.parent))
    assert ended.returncode == 65
    assert f"job {job_id}: jobs.job_id: the job is not in the store".encode() in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--jobs", ","], 64),
        (["--jobs", "nonsense"], 64),
        (["--jobs", "01890a5d-ac96-774b-bcce-b302099a8057,nonsense"], 64),
        (["--receipt", "absent.json"], 74),
        (["--receipt", "."], 74),
        (["--nonsense"], 64),
        (["absent.db"], 74),
    ],
)
def test_what_cannot_work_is_refused(
    rookhold: Rookhold, database: Path, arguments: list[str], status: int
) -> None:
    assert database.exists()
    ended = rookhold("db", "verify", *arguments)
    assert (ended.returncode, ended.stdout) == (status, b"")
    assert ended.stderr


def test_evidence_that_does_not_hold_in_itself_is_said(
    rookhold: Rookhold, database: Path, tmp_path: Path
) -> None:
    forged = receipt(database, finished_job(database)).replace(b'"exit_code":0', b'"exit_code":1')
    (tmp_path / "here/forged.json").write_bytes(forged)
    ended = rookhold("db", "verify", "--receipt", "forged.json")
    assert ended.returncode == 65
    assert b"evidence_unreadable" in ended.stderr


def test_another_version_and_another_program_are_told_apart(
    rookhold: Rookhold, tmp_path: Path
) -> None:
    make_old(tmp_path / "old" / "v2.db", 2).close()
    ended = rookhold("db", "verify", str(tmp_path / "old" / "v2.db"))
    assert ended.returncode == 74
    assert b"schema_version" in ended.stderr
    assert b"upgrades" in ended.stderr
    (tmp_path / "text.db").write_text("no database " * 1000)
    ended = rookhold("db", "verify", str(tmp_path / "text.db"))
    assert ended.returncode == 74
    assert b"foreign_schema" in ended.stderr


def test_damaged_pages_are_findings_and_no_traceback(rookhold: Rookhold, database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[8192:16384] = bytes(8192)
    database.write_bytes(content)
    ended = rookhold("db", "verify")
    assert ended.returncode == 65
    assert b"Traceback" not in ended.stderr
    assert b"file: " in ended.stdout


def test_what_comes_from_the_file_cannot_drive_a_terminal(
    rookhold: Rookhold, database: Path
) -> None:
    with unguarded(database) as db:
        db.execute("UPDATE job_storage_usage SET tenant = 'a' || char(27) || '[2J'")
    ended = rookhold("db", "verify")
    assert ended.returncode == 65
    assert b"\x1b" not in ended.stdout


def test_progress_is_shown_to_a_person(environment: dict[str, str], database: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "rookhold_cli", "db", "verify", str(database)],
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # Linux answers EIO once the other side is closed
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert process.wait(60) == 0
    assert b"checking" in said
    assert b"4/4" in said


def test_a_backup_is_made_verified_and_never_overwrites(
    rookhold: Rookhold, database: Path, tmp_path: Path
) -> None:
    ended = rookhold("db", "backup", "copy.db")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b", 4 jobs, verified\n" in ended.stdout
    copy = tmp_path / "here/copy.db"
    assert rookhold("db", "verify", str(copy)).returncode == 0
    before = copy.read_bytes()
    ended = rookhold("db", "backup", "copy.db", "--database", str(database))
    assert ended.returncode == 74
    assert b"backup_target" in ended.stderr
    assert copy.read_bytes() == before
    document = json.loads(rookhold("db", "backup", "second.db", "--json").stdout)
    assert (document["jobs"], document["verified"]) == (4, True)


def test_a_folder_that_a_backup_has_none_of_is_named(rookhold: Rookhold, database: Path) -> None:
    assert database.exists()
    ended = rookhold("db", "backup", "absent/copy.db")
    assert (ended.returncode, ended.stdout) == (74, b"")
    assert b"the folder absent does not exist" in ended.stderr


def test_a_damaged_database_is_told_of_and_has_no_backup(
    rookhold: Rookhold, database: Path, tmp_path: Path
) -> None:
    with unguarded(database) as db:
        db.execute("UPDATE jobs SET exit_code = 9 WHERE status = 'succeeded'")
    ended = rookhold("db", "backup", "copy.db")
    assert ended.returncode == 65
    assert b"jobs.exit_code" in ended.stdout
    assert list((tmp_path / "here").iterdir()) == []


def test_an_interrupted_backup_leaves_nothing(
    environment: dict[str, str], database: Path, tmp_path: Path
) -> None:
    here = tmp_path / "place"
    here.mkdir()
    program = (
        "import sys, time, rookhold_store.backup as b\n"
        "real = b._publish\n"
        "b._publish = lambda *a: (print('now', flush=True), time.sleep(60))\n"
        "from rookhold_cli.main import main\n"
        "sys.exit(main(['db', 'backup', 'copy.db', '--database', sys.argv[1]]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(database)],
        env=environment,
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"now\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    process.stdout.close()
    assert list(here.iterdir()) == []


def test_compaction_prints_both_sizes_and_keeps_everything(
    rookhold: Rookhold, database: Path
) -> None:
    ended = rookhold("db", "compact")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"before" in ended.stdout
    document = json.loads(rookhold("db", "compact", str(database), "--json").stdout)
    assert document["bytes_after"] == database.stat().st_size
    assert rookhold("db", "verify").returncode == 0


def test_compaction_is_refused_while_a_gateway_has_the_database(
    rookhold: Rookhold, database: Path
) -> None:
    with InstanceLock(database):
        ended = rookhold("db", "compact")
        assert (ended.returncode, ended.stdout) == (77, b"")
        assert b"stop that gateway first (database_locked)" in ended.stderr
        assert rookhold("db", "verify").returncode == 0
        assert rookhold("db", "stats").returncode == 0


def test_stats_count_and_compare_with_the_quota(rookhold: Rookhold, database: Path) -> None:
    ended = rookhold("db", "stats")
    assert (ended.returncode, ended.stderr) == (0, b"")
    said = ended.stdout.decode()
    assert "jobs          4: 1 queued, 1 running, 2 succeeded" in said
    assert "104.0 MiB" in said
    limited = rookhold("db", "stats", ROOKHOLD_STORAGE_GLOBAL_MB="1024").stdout.decode()
    assert "104.0 MiB of 1.0 GiB (10%)" in limited
    document = json.loads(rookhold("db", "stats", "--json", ROOKHOLD_STORAGE_TENANT_MB="64").stdout)
    assert (document["jobs"], document["tenant_quota_bytes"]) == (4, 64 * 1024 * 1024)
    assert document["quota_bytes"] is None
    assert document["most_charged"][0]["tenant"] == "acme"
    assert rookhold("db", "stats", ROOKHOLD_STORAGE_TENANT_MB="many").returncode == 64


def test_a_file_that_cannot_be_read_is_said(rookhold: Rookhold, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.db")
    for name in ("pipe.db", "."):
        ended = rookhold("db", "stats", str(tmp_path / name))
        assert ended.returncode == 74


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**60, "1048576.0 TiB"),
    ],
)
def test_sizes_are_in_powers_of_1024(count: int, text: str) -> None:
    assert counted.size(count) == text
