"""FR-06: no byte in what a job prints or produces breaks what stores it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.site import Site


def test_nul_and_every_other_byte_come_back(sandbox: Site) -> None:
    code = "import os; os.write(1, b'foo\\0bar\\n'); os.write(2, bytes(range(256)))"
    ran = sandbox.run("python", code)
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout_bytes == b"foo\0bar\n"
    assert ran.result.stdout == "foo\0bar\n"
    assert ran.result.stderr_bytes == bytes(range(256))
    job_id = ran.result.job_id
    assert sandbox.printed(job_id, "stdout") == b"foo\0bar\n"
    assert sandbox.printed(job_id, "stderr") == bytes(range(256))
    output = ran.receipt["output"]
    assert output["stdout_sha256"] == hashlib.sha256(b"foo\0bar\n").hexdigest()
    assert output["stderr_sha256"] == hashlib.sha256(bytes(range(256))).hexdigest()
    assert sandbox.run("python", "print('next')").result.stdout == "next\n"


def test_nul_in_a_produced_file_comes_back(sandbox: Site) -> None:
    code = "open('output/data', 'wb').write(b'a\\0b' + bytes(range(256)))"
    ran = sandbox.run("python", code, outputs=["output/data"])
    assert ran.ended == ("succeeded", None)
    content = b"a\0b" + bytes(range(256))
    assert [artifact.content for artifact in ran.result.artifacts] == [content]
    assert ran.receipt["artifacts"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    sandbox.events(ran.result.job_id)


def test_a_strange_name_beside_the_outputs_does_no_harm(sandbox: Site) -> None:
    code = (
        "import os\n"
        "strange = b'output/a\\nb\\tc\\xff'\n"
        "os.close(os.open(strange, os.O_CREAT | os.O_WRONLY))\n"
        "os.mkdir(strange + b'.d')\n"
        "open('output/plain', 'w').write('plain')\n"
        "os.write(1, strange)\n"
    )
    ran = sandbox.run("python", code, outputs=["output/plain"])
    assert ran.ended == ("succeeded", None)
    assert [artifact.content for artifact in ran.result.artifacts] == [b"plain"]
    assert ran.result.stdout_bytes == b"output/a\nb\tc\xff"
    sandbox.events(ran.result.job_id)
    assert sandbox.run("bash", "echo next").result.stdout == "next\n"
    assert list(sandbox.gateway.jobs_root.glob("job-*")) == []
