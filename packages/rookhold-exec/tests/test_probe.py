import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rookhold_exec import probe
from rookhold_exec.launcher import trial

KINDS = ("user", "pid", "mount", "network", "ipc", "uts", "cgroup")
NAMESPACES = {f"{each}-namespace" for each in KINDS}
OTHERS = {"no-new-privileges", "capabilities-dropped", "seccomp"}
GROUPS = {"cgroup-memory", "cgroup-pids", "cgroup-cpu"}
UNIFIED = {"cgroup-v2-memory", "cgroup-v2-pids"}


def facts(report: probe.HostReport) -> dict[str, probe.Fact]:
    return {fact.control: fact for fact in report.facts}


def view() -> list[str]:
    links = [str(path.readlink()) for path in Path("/proc/self/ns").iterdir()]
    return [Path("/proc/self/mountinfo").read_text(), *links]


def test_every_control_is_answered_once_with_a_reason() -> None:
    report = probe.host()
    assert set(facts(report)) == NAMESPACES | OTHERS | GROUPS | UNIFIED | {"newuidmap"}
    assert len(report.facts) == len(facts(report))
    assert all(fact.why and "/root" not in fact.why for fact in report.facts)
    assert report.root == (os.geteuid() == 0)
    assert report.namespaces == all(report.available(each) for each in NAMESPACES)
    assert report.seccomp == report.available("seccomp")


def test_groups_are_available_exactly_where_there_is_a_place() -> None:
    report = probe.host()
    controllers = {place[0] for place in report.places}
    for control, controller in (("cgroup-memory", "memory"), ("cgroup-pids", "pids")):
        if controller in controllers:
            assert report.available(control)
    assert bool(report.places) == any(report.available(each) for each in GROUPS)
    assert list(report.places) == probe.places()


def test_version_2_is_offered_whole_or_it_is_said_how_to_get_it() -> None:
    report = probe.host()
    whole = all(report.available(each) for each in UNIFIED)
    assert (report.unified is not None) == whole
    for each in UNIFIED:
        fact = facts(report)[each]
        assert fact.available or "systemd.unified_cgroup_hierarchy=1" in fact.why


def test_it_is_quick_and_leaves_nothing_behind() -> None:
    probe.host()
    before = view()
    begin = time.perf_counter()
    report = probe.host()
    assert time.perf_counter() - begin < 0.5
    assert view() == before
    for _, _, directory in report.places:
        assert not list(Path(directory).glob("rookhold-trial-*"))


@pytest.mark.root
def test_another_user_gets_an_answer_too() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]);" + (
        "from rookhold_exec.launcher.trial import main; main('')"
    )
    with tempfile.TemporaryDirectory() as place:  # a copy that everyone may read
        Path(place).chmod(0o755)
        shutil.copytree(Path(probe.__file__).parents[1], Path(place) / "src")
        done = subprocess.run(
            [os.path.realpath(sys.executable), "-I", "-S", "-c", code, f"{place}/src"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
        )
    answers = dict(line.split() for line in done.stdout.splitlines())
    assert set(answers) == NAMESPACES | OTHERS - {"seccomp"}
    switch = Path("/proc/sys/kernel/unprivileged_userns_clone")
    if not switch.exists() or switch.read_text().strip() == "1":
        assert answers["user-namespace"] == "0"


@pytest.mark.parametrize("control", sorted(NAMESPACES))
def test_a_kernel_that_refuses_is_believed(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = dict.fromkeys(NAMESPACES | OTHERS, 0) | {control: errno.EPERM}
    monkeypatch.setattr(probe, "_answers", lambda: answers)
    report = probe.host()
    assert not report.namespaces
    assert [
        fact.control for fact in report.facts if fact.control in NAMESPACES and not fact.available
    ] == [control]
    assert "allow" in facts(report)[control].why or "userns" in facts(report)[control].why


def test_a_trial_that_never_answers_makes_nothing_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "_TRIAL", "import time; time.sleep(60)")
    monkeypatch.setattr(probe, "_SECONDS", 0.2)
    report = probe.host()
    assert not report.namespaces
    assert not report.seccomp
    assert "did not answer" in facts(report)["user-namespace"].why


def test_a_trial_that_dies_makes_nothing_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_TRIAL", "raise SystemExit(1)")
    assert not probe.host().namespaces


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSYS, "kernel does not have it"),
        (errno.EINVAL, "kernel does not have it"),
        (errno.EPERM, "not allowed"),
        (errno.ENOSPC, "no more of them"),
        (errno.EIO, "EIO"),
    ],
)
def test_reasons_are_in_plain_words(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_SWITCHES", ())
    assert said in probe._reason("pid-namespace", number)


def test_a_switch_of_the_host_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    switch.write_text("0\n")
    monkeypatch.setattr(probe, "_SWITCHES", ((str(switch), "0", "user.thing is 0"),))
    assert probe._reason("user-namespace", errno.EPERM) == "user.thing is 0"
    switch.write_text("1\n")
    assert "user.thing" not in probe._reason("user-namespace", errno.EPERM)


def test_other_systems_than_linux_offer_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    report = probe.host()
    assert not report.namespaces
    assert not any(fact.available for fact in report.facts)
    assert report.places == ()


def test_a_filter_that_does_nothing_is_not_taken_for_one(tmp_path: Path) -> None:
    allow_everything = tmp_path / "allow.bpf"
    allow_everything.write_bytes(bytes.fromhex("060000000000ff7f"))
    pid = trial._begin(lambda: trial._filter(str(allow_everything)))
    assert trial._end(pid) == errno.ENOSYS
