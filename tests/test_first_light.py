"""First light: a real job runs, and leaves evidence that verifies offline; on both backends."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway
from reports.site import SETTINGS, Site

from rookhold.errors import RookholdError
from rookhold_attestation import PrivateKey

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES = 10_000
MIB = 1 << 20
LANGUAGES = {
    "python": "import sys; print(6 * 7); print('to stderr', file=sys.stderr)",
    "node": "console.log(6 * 7); console.error('to stderr')",
    "bash": "echo $((6 * 7)); echo to stderr >&2",
}


@pytest.fixture(
    scope="module", params=[pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"]
)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("a place with spaces") / "home"
    gateway = Gateway(home, sandbox=request.param, **SETTINGS)
    with gateway, gateway.client() as client:
        yield Site(gateway, client, "other")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def artifact_of(site: Site, job_id: str) -> dict[str, object]:
    content = site.client.result_artifact(job_id, 30).content
    view: dict[str, object] = json.loads(content)
    return view


def check_everywhere(site: Site, code: str, printed: bytes) -> None:
    """The same bytes and digests in the result, the stored events, the receipt and the artifact."""
    ran = site.run("python", code)
    job_id = ran.result.job_id
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout_bytes == printed
    assert not ran.result.truncated
    assert site.printed(job_id, "stdout") == printed
    output = ran.receipt["output"]
    assert output["stdout_bytes"] == output["stdout_bytes_seen"] == len(printed)
    assert output["stdout_sha256"] == output["stdout_seen_sha256"] == digest(printed)
    seen = ran.receipt["executor_output"]["stdout"]
    assert (seen["bytes_seen"], seen["raw_sha256"]) == (len(printed), digest(printed))
    assert not seen["executor_truncated"]
    assert ran.receipt["evidence_complete"]
    assert artifact_of(site, job_id)["stdout"] == printed.decode()


def test_ten_thousand_lines_at_once_are_exact_everywhere(site: Site) -> None:
    printed = "".join(f"line {n} €\n" for n in range(LINES)).encode()
    code = f"import sys; sys.stdout.write(''.join(f'line {{n}} €\\n' for n in range({LINES})))"
    check_everywhere(site, code, printed)


def test_a_mebibyte_in_one_record_is_exact_everywhere(site: Site) -> None:
    check_everywhere(site, f"import sys; sys.stdout.write('x' * {MIB})", b"x" * MIB)


@pytest.mark.parametrize(
    "language", ["python", pytest.param("node", marks=pytest.mark.node), "bash"]
)
def test_each_language_runs(site: Site, language: str) -> None:
    assert language in site.client.capabilities().languages
    ran = site.run(language, LANGUAGES[language])
    assert ran.ended == ("succeeded", None)
    assert (ran.result.stdout, ran.result.stderr) == ("42\n", "to stderr\n")
    assert ran.result.exit_code == 0
    assert ran.receipt["runtime_version"]


def test_a_jobs_own_exit_code_is_its_result(site: Site) -> None:
    ran = site.run("bash", "echo before; exit 7")
    assert (ran.result.status, ran.result.exit_code) == ("failed", 7)
    assert ran.result.stdout == "before\n"


def test_an_input_file_goes_in_and_an_output_file_comes_out(site: Site) -> None:
    given = secrets.token_bytes(100_000)
    code = "cp 'input/a folder/given' output/deep/copy"
    ran = site.run(
        "bash", code, files={"input/a folder/given": given}, outputs=["output/deep/copy"]
    )
    assert ran.ended == ("succeeded", None)
    [copied] = ran.result.artifacts
    assert (copied.path, copied.content) == ("output/deep/copy", given)
    expected = {"size_bytes": len(given), "sha256": digest(given)}
    assert ran.receipt["input_files"] == [{"path": "input/a folder/given", **expected}]
    assert ran.receipt["artifacts"] == [{"path": "output/deep/copy", **expected}]
    kinds = [event.kind for event in site.events(ran.result.job_id)]
    assert kinds.count("artifact") == 1


def test_an_output_that_is_missing_is_named(site: Site) -> None:
    outputs = ["output/here", "output/gone"]
    ran = site.run("bash", "echo kept > output/here", outputs=outputs)
    assert ran.ended == ("error", "requested_output_unavailable")
    assert [artifact.content for artifact in ran.result.artifacts] == [b"kept\n"]
    [violation] = ran.result.violations
    assert violation.detail["outputs"] == [{"path": "output/gone", "reason": "missing"}]


@pytest.mark.parametrize(
    ("language", "more", "code"),
    [
        ("fortran", {}, "unsupported_language"),
        ("python", {"files": {"input/../secret": b""}}, "invalid_input_path"),
        (
            "python",
            {"requirements": {"minimum_isolation": "hardware-vm"}},
            "minimum_isolation_unsatisfied",
        ),
        ("python", {"limits": {"allow_network": True}}, "network_opt_in_unsupported"),
    ],
)
def test_a_submission_that_cannot_be_served_is_refused_and_leaves_nothing(
    site: Site, language: str, more: dict[str, object], code: str
) -> None:
    before = [job.job_id for job in site.client.jobs()]
    with pytest.raises(RookholdError) as refused:
        site.submit(language, "print(1)", **more)
    assert refused.value.code == code
    assert [job.job_id for job in site.client.jobs()] == before


def rookhold_verify(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run the real command, where it is installed; else its module, in an empty environment."""
    script = shutil.which("rookhold-verify", path=str(Path(sys.executable).parent))
    command = [script] if script else [sys.executable, "-m", "rookhold_attestation"]
    return subprocess.run(
        [*command, *arguments], env={}, capture_output=True, timeout=60, check=False
    )


@pytest.fixture
def evidence(site: Site, tmp_path: Path) -> dict[str, Path]:
    """The three files of one job, as an auditor would hold them."""
    job_id = site.submit("python", "print('worth keeping')")
    assert site.finish(job_id).result.status == "succeeded"
    files = {name: tmp_path / name for name in ("envelope", "subject", "public-key")}
    files["envelope"].write_bytes(site.client.attestation(job_id, 30).content)
    files["subject"].write_bytes(site.client.result_artifact(job_id, 30).content)
    PrivateKey.load(site.gateway.key_file).public_key.save(files["public-key"])
    return files


def verify(files: dict[str, Path]) -> subprocess.CompletedProcess[bytes]:
    options = [part for name, path in files.items() for part in (f"--{name}", path)]
    return rookhold_verify("verify", *options, "--tenant", "local")


def test_evidence_verifies_offline(evidence: dict[str, Path]) -> None:
    done = verify(evidence)
    assert (done.returncode, done.stderr) == (0, b"")
    said = json.loads(done.stdout)
    assert said["verified"]
    assert (said["tenant"], said["outcome"]) == ("local", "succeeded")
    assert said["event_chain_complete"]
    assert said["subject_sha256"] == digest(evidence["subject"].read_bytes())


@pytest.mark.parametrize("name", ["subject", "envelope"])
def test_evidence_with_one_changed_byte_is_refused(evidence: dict[str, Path], name: str) -> None:
    content = evidence[name].read_bytes()
    at = content.index(b'"payload":"') + 100 if name == "envelope" else len(content) // 2
    changed = bytes([content[at] ^ 1])
    evidence[name].write_bytes(content[:at] + changed + content[at + 1 :])
    done = verify(evidence)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"rookhold-verify: ")


def test_evidence_under_another_key_is_refused(evidence: dict[str, Path], tmp_path: Path) -> None:
    evidence["public-key"] = tmp_path / "other-key"
    PrivateKey.generate().public_key.save(evidence["public-key"])
    assert verify(evidence).returncode == 1
