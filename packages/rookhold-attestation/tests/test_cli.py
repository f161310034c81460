import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import rookhold_attestation
from rookhold_attestation import profile, sign_statement
from rookhold_attestation.cli import main
from rookhold_attestation.testing import JOB_ID, TENANT, Evidence, sample_evidence, sample_key

NAME = f"coop://jobs/{JOB_ID}/result"


class Folder:
    """A folder with one set of evidence and the command line to verify it."""

    def __init__(self, root: Path, evidence: Evidence) -> None:
        self.envelope, self.subject = root / "envelope.json", root / "result.json"
        self.key = root / "signer.pub.pem"
        self.envelope.write_bytes(evidence.envelope)
        self.subject.write_bytes(evidence.artifact)
        evidence.key.public_key.save(self.key)

    def verify(self, *more: str) -> list[str]:
        return [
            *("verify", "--envelope", str(self.envelope), "--subject", str(self.subject)),
            *("--public-key", str(self.key), *more),
        ]


def test_its_version_is_the_wheels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    version = importlib.metadata.version("rookhold-attestation")
    assert capsys.readouterr() == (f"rookhold-verify {version}\n", "")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, sample_evidence())


class Ran:
    """What one run of the program in this process did."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.status = main(arguments)
        self.out, self.err = capsys.readouterr()

    def facts(self) -> dict[str, object]:
        assert self.out.count("\n") == 1
        assert self.out.endswith("\n")
        facts: dict[str, object] = json.loads(self.out)
        assert self.out == json.dumps(facts, separators=(",", ":")) + "\n"
        return facts

    def refused(self) -> str:
        """Return the one line of a refusal, having checked that it is one."""
        assert (self.status, self.out) == (1, "")
        assert self.err.startswith("rookhold-verify: ")
        assert self.err.count("\n") == 1
        return self.err


def test_a_good_set_is_one_json_line_and_exit_0(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = ["--subject-name", NAME, "--media-type", profile.RESULT_MEDIA_TYPE]
    ran = Ran(capsys, *folder.verify("--tenant", TENANT, *policy))
    assert (ran.status, ran.err) == (0, "")
    evidence = sample_evidence()
    assert ran.facts() == {
        "verified": True,
        "execution_id": JOB_ID,
        "tenant": TENANT,
        "tenant_checked": True,
        "subject_name": NAME,
        "subject_media_type": profile.RESULT_MEDIA_TYPE,
        "subject_sha256": rookhold_attestation.ArtifactDigest.of(evidence.artifact).sha256,
        "subject_size_bytes": len(evidence.artifact),
        "outcome": "succeeded",
        "event_chain_complete": True,
        "verified_key_ids": [evidence.key.key_id],
    }


def test_a_failed_job_with_an_incomplete_history_verifies_and_is_reported_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = {"version": 1, "events": 3, "complete": False, "head": "ab" * 32}
    folder = Folder(tmp_path, sample_evidence(outcome="failed", event_chain=chain))
    ran = Ran(capsys, *folder.verify("--tenant", TENANT))
    assert ran.status == 0
    assert (ran.facts()["outcome"], ran.facts()["event_chain_complete"]) == ("failed", False)


def test_without_a_tenant_it_says_that_the_tenant_was_not_checked(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(capsys, *folder.verify())
    assert ran.status == 0
    assert ran.facts()["tenant_checked"] is False
    assert ran.err.startswith("rookhold-verify: the tenant was read")


def test_the_receipt_is_never_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path, sample_evidence(note="hunter2"))
    for arguments in (folder.verify(), ["inspect", "--envelope", str(folder.envelope)]):
        ran = Ran(capsys, *arguments)
        assert ran.status == 0
        assert "hunter2" not in ran.out + ran.err


def test_one_changed_byte_of_the_result_is_refused_on_one_line(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    content = folder.subject.read_bytes()
    folder.subject.write_bytes(content[:-1] + b"?")
    assert "[subject_digest_mismatch]" in Ran(capsys, *folder.verify()).refused()


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--tenant", "other", "tenant_policy_mismatch"),
        ("--subject-name", "other", "subject_policy_mismatch"),
        ("--media-type", "x/y", "subject_policy_mismatch"),
        ("--threshold", "2", "invalid_signature_threshold"),
    ],
)
def test_a_policy_that_is_not_met_is_refused(
    folder: Folder, capsys: pytest.CaptureFixture[str], option: str, value: str, code: str
) -> None:
    assert f"[{code}]" in Ran(capsys, *folder.verify(option, value)).refused()


def test_a_threshold_of_two_needs_two_keys(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = sample_key(2)
    second.public_key.save(tmp_path / "second.pub.pem")
    both = folder.verify("--public-key", str(tmp_path / "second.pub.pem"), "--threshold", "2")
    assert "[signature_threshold_not_met]" in Ran(capsys, *both).refused()
    evidence = sample_evidence()
    folder.envelope.write_bytes(sign_statement(evidence.statement, [evidence.key, second]))
    ran = Ran(capsys, *both)
    assert ran.facts()["verified_key_ids"] == sorted([evidence.key.key_id, second.key_id])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["verify"],
        ["verify", "--envelope", "e", "--subject", "s"],
        ["verify", "--envelope", "e", "--subject", "s", "--public-key", "k", "--threshold", "0"],
        ["verify", "--envelope", "e", "--subject", "s", "--public-key", "k", "--threshold", "-1"],
        ["verify", "--envelope", "e", "--subject", "s", "--public-key", "k", "--threshold", "x"],
        ["verify", "--env", "e", "--subject", "s", "--public-key", "k"],
        ["inspect"],
        ["inspect", "--envelope", "e", "--subject", "s"],
        ["generate-key"],
        ["public-key", "--output", "o"],
    ],
    ids=range(12),
)
def test_wrong_usage_is_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert "rookhold-verify" in ran.err


@pytest.mark.parametrize("arguments", [["--help"], ["verify", "--help"], ["inspect", "--help"]])
def test_help_is_exit_0(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, *arguments)
    assert (ran.status, ran.err) == (0, "")
    assert "usage: rookhold-verify" in ran.out


def test_inputs_must_be_regular_files_of_bounded_size(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(name: str, path: Path) -> str:
        paths = {"envelope": folder.envelope, "subject": folder.subject, name: path}
        arguments = [f"--{option}={value}" for option, value in paths.items()]
        line = Ran(capsys, "verify", *arguments, f"--public-key={folder.key}").refused()
        assert str(tmp_path) not in line
        return line.rpartition("[")[2].rstrip("]\n")

    link, fifo, large = tmp_path / "link", tmp_path / "fifo", tmp_path / "large"
    link.symlink_to(folder.envelope)
    os.mkfifo(fifo)
    for name in ("envelope", "subject"):
        assert refused(name, link) == "unsafe_input_file_type"
        assert refused(name, fifo) == "unsafe_input_file_type"
        assert refused(name, tmp_path) == "unsafe_input_file_type"
        assert refused(name, tmp_path / "missing") == "io"
    with large.open("wb") as file:
        file.truncate(2_097_153)
    assert refused("envelope", large) == "envelope_too_large"
    with large.open("wb") as file:
        file.truncate(16_777_217)
    assert refused("subject", large) == "subject_artifact_too_large"
    assert refused("public-key", link) == "unsafe_key_file_type"


def test_inspect_says_that_nothing_was_verified(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    # The signature is cut out: what inspect shows would be just the same.
    envelope = json.loads(folder.envelope.read_bytes())
    envelope["signatures"][0]["sig"] = "AAAA"
    folder.envelope.write_text(json.dumps(envelope))
    ran = Ran(capsys, "inspect", "--envelope", str(folder.envelope))
    facts = ran.facts()
    assert ran.status == 0
    assert facts["verified"] is False
    assert "nothing was verified" in str(facts["notice"])
    assert "nothing was verified" in ran.err
    assert (facts["execution_id"], facts["tenant"], facts["outcome"]) == (
        JOB_ID,
        TENANT,
        "succeeded",
    )
    assert facts["claimed_key_ids"] == [sample_key().key_id]
    assert facts["predicate_type"] == profile.PREDICATE_TYPE
    assert "tenant_checked" not in facts


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b"\xff"])
def test_inspect_refuses_what_is_no_envelope(
    folder: Folder, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    folder.envelope.write_bytes(content)
    assert "[invalid_json]" in Ran(capsys, "inspect", "--envelope", str(folder.envelope)).refused()


def test_a_name_from_an_envelope_cannot_steer_the_terminal(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    envelope = json.loads(folder.envelope.read_bytes())
    envelope["signatures"][0]["keyid"] = "\u202e\u2066 x"
    folder.envelope.write_text(json.dumps(envelope))
    ran = Ran(capsys, "inspect", "--envelope", str(folder.envelope))
    assert ran.out.isascii()
    assert ran.facts()["claimed_key_ids"] == ["\u202e\u2066 x"]


def test_an_existing_key_is_not_overwritten(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    before = folder.key.read_bytes()
    line = Ran(capsys, "generate-key", "--output", str(folder.key)).refused()
    assert "[key_file_already_exists]" in line
    assert folder.key.read_bytes() == before


# The program itself, in its own process


def program(
    arguments: list[str], cwd: Path, *, python: tuple[str, ...] = (), stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program with an empty environment."""
    return subprocess.run(
        [sys.executable, *python, "-m", "rookhold_attestation", *arguments],
        cwd=cwd,
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


def test_keys_are_made_and_used_from_nothing_in_an_empty_environment(tmp_path: Path) -> None:
    made = program(["generate-key", "--output", "signer.pem"], tmp_path)
    derived = program(
        ["public-key", "--private-key", "signer.pem", "--output", "signer.pub.pem"], tmp_path
    )
    key_id = json.loads(made.stdout)["key_id"]
    assert json.loads(derived.stdout) == {"key_id": key_id}
    assert (tmp_path / "signer.pem").stat().st_mode & 0o777 == 0o600

    evidence = sample_evidence(rookhold_attestation.PrivateKey.load(tmp_path / "signer.pem"))
    (tmp_path / "envelope.json").write_bytes(evidence.envelope)
    (tmp_path / "result.json").write_bytes(evidence.artifact)
    command = ["verify", "--envelope", "envelope.json", "--subject", "result.json"]
    command += ["--public-key", "signer.pub.pem", "--tenant", TENANT]
    verified = program(command, tmp_path)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert json.loads(verified.stdout)["verified_key_ids"] == [key_id]

    changed = bytearray(evidence.envelope)
    changed[60] ^= 1
    (tmp_path / "envelope.json").write_bytes(changed)
    refused = program(command, tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("rookhold-verify: ")


def alone(folder: Path) -> Path:
    """Fill a folder with this wheel and what it declares to need, and nothing else."""
    folder.mkdir()
    waiting, seen = ["pynacl"], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            top = file.parts[0]
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))
        for requirement in distribution.requires or ():
            wanted, _, marker = requirement.partition(";")
            bare = wanted.split("[")[0].split("(")[0].strip("<>=!~., 0123456789").lower()
            if "extra ==" not in marker and bare not in seen:
                waiting.append(bare)
    source = Path(str(rookhold_attestation.__file__)).parent
    (folder / "rookhold_attestation").symlink_to(source)
    return folder


def test_it_verifies_where_only_this_wheel_and_its_dependency_exist(tmp_path: Path) -> None:
    Folder(tmp_path, sample_evidence())
    site = alone(tmp_path / "site")
    probe = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import importlib.util as u; "
        "assert not any(u.find_spec(n) for n in ('rookhold_types', 'msgspec', 'pytest')); "
        "from rookhold_attestation.cli import main; "
        "sys.exit(main(['verify', '--envelope', 'envelope.json', '--subject', 'result.json', "
        f"'--public-key', 'signer.pub.pem', '--tenant', {TENANT!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", probe],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["verified"] is True


@pytest.mark.parametrize("arguments", [["--help"], ["verify", "--help"], ["verify"]])
def test_help_and_usage_do_not_load_the_cryptography(arguments: list[str]) -> None:
    probe = (
        "import sys; from rookhold_attestation.cli import main; main(sys.argv[1:]); "
        "sys.exit('nacl' in sys.modules or 'cffi' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", probe, *arguments], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 0


def test_a_verdict_that_cannot_be_written_is_not_a_success(folder: Folder) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = program(folder.verify("--tenant", TENANT), folder.key.parent, stdout=full.fileno())
    assert ran.returncode == 1
    assert ran.stderr.startswith("rookhold-verify: ")
    assert "Traceback" not in ran.stderr


# Status 0 needs a reader of the answer; no status needs one of the complaint.
@pytest.mark.parametrize(
    ("arguments", "redirection", "status"),
    [
        ("generate-key --output new.pem", ">&-", 1),
        ("generate-key --output new.pem", ">/dev/full", 1),
        ("generate-key --output new.pem", "2>&-", 0),
        ("generate-key --output signer.pub.pem", "2>&-", 1),
        ("generate-key --output signer.pub.pem", "2>/dev/full", 1),
        ("--help", ">/dev/full", 1),
        ("--help", ">&-", 1),
        ("verify", "2>/dev/full", 2),
        ("verify", "2>&-", 2),
        ("verify --threshold x", ">&- 2>&-", 2),
    ],
)
def test_a_closed_or_full_stream_changes_no_status_but_that_of_a_lost_answer(
    folder: Folder, arguments: str, redirection: str, status: int
) -> None:
    command = f"{shlex.quote(sys.executable)} -m rookhold_attestation {arguments} {redirection}"
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder.key.parent,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == status
    assert ran.stdout.startswith('{"key_id":') == (status == 0)
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("place", ["n" * 300, "d/" * 3000 + "f"], ids=["name", "path"])
def test_a_path_too_long_to_look_up_is_a_refusal_that_does_not_repeat_it(
    folder: Folder, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key, envelope, subject = str(folder.key), str(folder.envelope), str(folder.subject)
    for arguments in (
        ["verify", "--envelope", place, "--subject", subject, "--public-key", key],
        ["verify", "--envelope", envelope, "--subject", place, "--public-key", key],
        ["verify", "--envelope", envelope, "--subject", subject, "--public-key", place],
        ["inspect", "--envelope", place],
        ["generate-key", "--output", place],
        ["public-key", "--private-key", place, "--output", place],
    ):
        refusal = Ran(capsys, *arguments).refused()
        assert refusal.endswith(" [io]\n")
        assert place not in refusal
