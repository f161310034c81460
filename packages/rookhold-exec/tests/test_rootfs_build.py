"""Building a root file system: only what is pinned and kept becomes part, or nothing is left."""

from __future__ import annotations

import os
import stat
import tarfile
import threading
from pathlib import Path

import pytest
from fake_debian import FakeDebian

from rookhold_exec.launcher import root as synthetic
from rookhold_exec.rootfs import debian, layout, pins, verify
from rookhold_exec.rootfs.build import build
from rookhold_exec.rootfs.errors import RootfsError
from rookhold_types.runtimes import PACKS

PINNED = dict(pins.load().packages)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDebian:
    made = FakeDebian(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{made.folder}:/usr/bin:/bin")
    made.installs(PINNED)
    return made


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir(mode=0o755)
    return tmp_path / "place" / "rootfs"


def refused(target: Path, **options: object) -> RootfsError:
    """Build, which must fail and leave nothing."""
    before = sorted(target.parent.iterdir())
    with pytest.raises(RootfsError) as caught:
        build(str(target), **options)  # type: ignore[arg-type]
    assert sorted(target.parent.iterdir()) == before
    return caught.value


def test_what_is_built_verifies_and_offers_every_pack(fake: FakeDebian, target: Path) -> None:
    built = build(str(target))
    assert built.path == str(target)
    assert built.packs == tuple(PACKS.values())
    assert verify(str(target), pinned=built.digest, uids=range(210_000, 210_064)) == built
    assert os.listdir(target.parent) == ["rootfs"]


def test_two_builds_of_the_same_packages_are_the_same(fake: FakeDebian, target: Path) -> None:
    one = build(str(target))
    other = build(str(target.with_name("other")))
    assert one.digest == other.digest


@pytest.mark.parametrize(
    "name",
    [
        "etc/shadow", "etc/machine-id", "etc/hostname", "etc/resolv.conf", "etc/apt/sources.list",
        "var/lib/apt/lists/x", "var/cache/apt/x", "var/log/dpkg.log", "root/.bashrc", "home/u/x",
        "usr/share/man/man1/x.1", "dev/null", "boot/vmlinuz", "opt/x", "usrx/bin/x",
    ],
)  # fmt: skip
def test_what_tells_of_hosts_and_installations_is_left_out(
    fake: FakeDebian, target: Path, name: str
) -> None:
    fake.put(name, b"x")
    fake.installs(PINNED)
    build(str(target))
    assert not (target / name).exists()


@pytest.mark.root
@pytest.mark.linux_ns
def test_what_is_mounted_for_a_build_is_not_mounted_on_the_host(
    fake: FakeDebian, target: Path
) -> None:
    build(str(target))
    theirs = (fake.folder / "mounts").read_text()
    assert theirs.startswith("mnt:[")
    assert theirs != str(Path("/proc/self/ns/mnt").readlink())


def test_no_hard_link_leads_out_by_way_of_a_symbolic_one(fake: FakeDebian, target: Path) -> None:
    outside = target.parent / "outside"
    outside.mkdir()
    secret = outside / "secret"
    secret.write_text("of this host")
    secret.chmod(0o600)
    fake.link("usr/lib/way", str(outside))
    fake.link("usr/lib/taken", "usr/lib/way/secret", kind=tarfile.LNKTYPE)
    fake.installs(PINNED)
    assert "link to what is left out" in str(refused(target))
    assert (secret.stat().st_nlink, stat.S_IMODE(secret.stat().st_mode)) == (1, 0o600)


def test_licences_are_kept(fake: FakeDebian, target: Path) -> None:
    fake.put("usr/share/doc/bash/copyright", b"x")
    fake.put("usr/share/doc/bash/changelog.gz", b"x")
    fake.installs(PINNED)
    build(str(target))
    assert os.listdir(target / "usr/share/doc/bash") == ["copyright"]


def test_modes_owners_and_times_become_plain(fake: FakeDebian, target: Path) -> None:
    fake.put("usr/bin/su", b"x", mode=0o4755)
    fake.put("usr/lib/private", b"x", mode=0o600)
    fake.put("usr/local", mode=0o2775, kind=tarfile.DIRTYPE)
    fake.link("usr/bin/su2", "usr/bin/su", kind=tarfile.LNKTYPE)
    fake.installs(PINNED)
    build(str(target))
    for path in (target, *target.rglob("*")):
        status = path.lstat()
        assert status.st_uid == os.geteuid()
        assert status.st_mtime == pins.load().epoch
        assert stat.S_IMODE(status.st_mode) in {0o755, 0o644, 0o777}
    assert stat.S_IMODE((target / "usr/bin/su").stat().st_mode) == 0o755
    assert (target / "usr/bin/su2").samefile(target / "usr/bin/su")
    assert stat.S_IMODE((target / "usr/lib/private").stat().st_mode) == 0o644


def test_devices_and_fifos_are_never_made(fake: FakeDebian, target: Path) -> None:
    fake.put("usr/lib/fifo", kind=tarfile.FIFOTYPE)
    fake.put("usr/lib/device", kind=tarfile.CHRTYPE)
    fake.installs(PINNED)
    build(str(target))
    assert not (target / "usr/lib/fifo").exists()
    assert not (target / "usr/lib/device").exists()


@pytest.mark.parametrize("name", ["usr/../../outside", "../outside", "/usr/../../outside"])
def test_a_member_that_leads_out_ends_the_build(
    fake: FakeDebian, target: Path, tmp_path: Path, name: str
) -> None:
    fake.put(name, b"x")
    fake.installs(PINNED)
    assert refused(target).code == "rootfs_build_failed"
    assert not (tmp_path / "outside").exists()


def test_nothing_is_written_through_a_link_of_the_archive(
    fake: FakeDebian, target: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    fake.link("usr/lib", str(outside))
    fake.put("usr/lib/x", b"x")
    fake.installs(PINNED)
    assert refused(target).code == "rootfs_build_failed"
    assert not list(outside.iterdir())


def test_accounts_are_those_of_every_sandbox(fake: FakeDebian, target: Path) -> None:
    build(str(target))
    assert layout.JOB_UID == synthetic.JOB_UID
    for name, text in synthetic._SYNTHETIC.items():
        assert (target / "etc" / name).read_text() == text


def test_mount_points_are_there_and_empty(fake: FakeDebian, target: Path) -> None:
    build(str(target))
    for name in ("proc", "dev/shm", "tmp", "work", "workspace"):
        assert list((target / name).iterdir()) == []


def test_an_empty_directory_is_built_in_and_a_filled_one_is_left_alone(
    fake: FakeDebian, target: Path
) -> None:
    target.mkdir()
    build(str(target))
    assert refused(target).code == "rootfs_target_exists"
    other = target.with_name("file")
    other.write_text("mine")
    assert refused(other).code == "rootfs_target_exists"
    link = target.with_name("link")
    link.symlink_to(target.with_name("elsewhere"))
    assert refused(link).code == "rootfs_target_exists"


def test_a_place_that_is_not_there_is_refused(fake: FakeDebian, target: Path) -> None:
    with pytest.raises(RootfsError) as caught:
        build(str(target / "deep" / "below"))
    assert caught.value.code == "rootfs_target_unwritable"


def test_exactly_the_pinned_versions_are_asked_for(fake: FakeDebian, target: Path) -> None:
    build(str(target))
    build(str(target.with_name("newer")), newer=True)
    (pinned, environ, _), (newer, _, _) = fake.calls
    names = next(each for each in pinned if each.startswith("--include=")).partition("=")[2]
    assert names.split(",") == [f"{name}={version}" for name, version in PINNED.items()]
    assert f"--include={','.join(PINNED)}" in newer
    assert "--variant=custom" in pinned
    assert environ["SOURCE_DATE_EPOCH"] == str(pins.load().epoch)


def test_other_versions_are_refused_or_with_newer_said(fake: FakeDebian, target: Path) -> None:
    fake.installs(PINNED | {"bash": "99"})
    error = refused(target)
    assert error.code == "rootfs_packages_differ"
    assert "bash" in str(error)
    said: list[str] = []
    build(str(target), newer=True, tell=said.append)
    assert f"N: bash: pinned {PINNED['bash']}, got 99" in said


def test_a_package_too_many_or_too_few_is_refused(fake: FakeDebian, target: Path) -> None:
    fake.installs(PINNED | {"stowaway": "1"})
    assert "stowaway" in str(refused(target))
    fake.installs({name: version for name, version in PINNED.items() if name != "bash"})
    assert refused(target).code == "rootfs_packages_differ"


def test_versions_that_the_mirror_lacks_are_named(fake: FakeDebian, target: Path) -> None:
    fake.says("E: Version '5.2' for 'bash' was not found\nE: Unable to locate package dash")
    fake.ends(100)
    error = refused(target)
    assert error.code == "rootfs_packages_differ"
    assert error.inside == "bash, dash"


def test_a_missing_interpreter_ends_the_build(fake: FakeDebian, target: Path) -> None:
    fake.put("usr/bin/node", b"x", mode=0o644)
    fake.installs(PINNED)
    assert refused(target).code == "rootfs_build_failed"


@pytest.mark.parametrize("status", [1, 25])
def test_a_failure_of_mmdebstrap_after_its_archive_is_one(
    fake: FakeDebian, target: Path, status: int
) -> None:
    fake.ends(status)
    assert refused(target).code == "rootfs_build_failed"


def test_an_archive_that_is_cut_short_is_a_failure(fake: FakeDebian, target: Path) -> None:
    archive = fake.folder / "archive"
    archive.write_bytes(archive.read_bytes()[:1000])
    assert refused(target).code == "rootfs_build_failed"
    archive.write_bytes(b"")
    assert refused(target).code == "rootfs_build_failed"


def test_a_build_that_hangs_is_ended(
    fake: FakeDebian, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "SECONDS_MAX", 1)
    fake.ends(after=600)
    assert refused(target).code == "rootfs_build_timeout"
    ((_, _, pid),) = fake.calls
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_interrupted_build_leaves_neither_process_nor_file(
    fake: FakeDebian, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.ends(after=600)
    fake.says("I: working")

    def interrupt(line: str) -> None:
        del line
        reached.set()

    reached = threading.Event()

    class Interrupted(BaseException):
        pass

    def unpack(*_: object) -> None:
        assert reached.wait(60)
        raise Interrupted

    monkeypatch.setattr("rookhold_exec.rootfs.build.Tree.unpack", unpack)
    with pytest.raises(Interrupted):
        build(str(target), tell=interrupt)
    ((_, _, pid),) = fake.calls
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(target.parent.iterdir()) == []


def test_without_mmdebstrap_it_is_named(
    fake: FakeDebian, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(target.parent))
    assert refused(target).code == "rootfs_builder_missing"


def test_the_mirrors_are_those_of_the_hosts_apt_with_its_settings(
    fake: FakeDebian, target: Path
) -> None:
    build(str(target))
    ((argv, _, _),) = fake.calls
    lines = [each.rpartition("] ")[2].removeprefix("deb ") for each in argv if "deb " in each]
    assert sorted(lines) == [
        "http://mirror.test/debian/ bookworm main",
        "http://mirror.test/debian/ bookworm-updates main",
        "http://security.test/ bookworm-security main",
    ]
    assert '--aptopt=Acquire::Retries "3";' in argv
    assert not any("A::B" in each for each in argv)


def test_a_host_that_knows_no_such_mirror_is_told(fake: FakeDebian, target: Path) -> None:
    fake.targets("Packages|http://mirror.test/debian/|trixie|main|Debian\n")
    assert refused(target).code == "rootfs_no_mirror"
    build(str(target), mirrors=["http://mine.test/debian"])
    assert fake.calls[-1][0][-1] == "http://mine.test/debian"


@pytest.mark.parametrize("mirror", ["-", "/etc/passwd", "--mode=chrootless", "--x=http://a"])
def test_a_mirror_is_an_address_or_a_line(fake: FakeDebian, target: Path, mirror: str) -> None:
    assert refused(target, mirrors=[mirror]).code == "rootfs_no_mirror"


def test_nothing_of_the_environment_reaches_the_build(
    fake: FakeDebian, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOKHOLD_API_KEYS", "secret")
    monkeypatch.setenv("APT_CONFIG", "/nowhere")
    build(str(target))
    ((_, environ, _),) = fake.calls
    assert set(environ) <= {"PATH", "HOME", "TMPDIR", "SOURCE_DATE_EPOCH", "LC_ALL", "LC_CTYPE",
                            "http_proxy", "https_proxy", "no_proxy"}  # fmt: skip


def test_the_list_is_sorted_and_holds_what_was_asked_for() -> None:
    names = list(PINNED)
    assert names == sorted(names)
    assert {"python3", "nodejs", "bash", "tzdata", "netbase", "media-types"} <= set(names)
