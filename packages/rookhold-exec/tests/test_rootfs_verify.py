"""What may be the root of sandboxes: each thing that may not has its own code, and no host path."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from small_rootfs import make, write

from rookhold_exec.errors import ExecutorUnavailableError
from rookhold_exec.rootfs import RootfsError, digest, manifest, verify
from rookhold_exec.rootfs.manifest import digest_of
from rookhold_exec.rootfs.packs import RECORD, record
from rookhold_types.runtimes import PACKS

SLOTS = range(210_000, 210_008)
CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "root")


def refused(path: str | Path, **options: str) -> RootfsError:
    with pytest.raises(RootfsError) as caught:
        verify(str(path), uids=SLOTS, **options)  # type: ignore[arg-type]
    assert isinstance(caught.value, ExecutorUnavailableError)
    return caught.value


def test_a_fit_one_is_taken_and_told_apart(root: Path) -> None:
    found = verify(str(root), uids=SLOTS)
    assert found.path == str(root)
    assert found.digest == digest(manifest(str(root)))
    assert (found.device, found.inode) == (root.stat().st_dev, root.stat().st_ino)
    assert found.packs == ()
    assert verify(str(root), pinned=found.digest, uids=SLOTS) == found


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", "rootfs_not_absolute"),
        ("srv/rootfs", "rootfs_not_absolute"),
        ("./srv", "rootfs_not_absolute"),
        ("/", "rootfs_is_host_root"),
        ("//", "rootfs_is_host_root"),
        ("/srv/", "rootfs_not_normalised"),
        ("//srv", "rootfs_not_normalised"),
        ("/srv/../etc", "rootfs_not_normalised"),
        ("/srv/./x", "rootfs_not_normalised"),
        ("/srv//x", "rootfs_not_normalised"),
        ("/..", "rootfs_not_normalised"),
        ("/no/such/place", "rootfs_missing"),
        ("/etc/passwd", "rootfs_not_directory"),
        ("/etc/passwd/below", "rootfs_not_directory"),
        ("/proc/self/root", "rootfs_symlink"),
        ("/a\0b", "rootfs_unreadable"),
    ],
)
def test_a_path_that_is_wrong_is_refused(path: str, code: str) -> None:
    assert refused(path).code == code


def test_a_link_in_place_of_it_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert refused(tmp_path / "link").code == "rootfs_symlink"


def test_a_link_on_the_way_to_it_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(tmp_path)
    assert refused(tmp_path / "way" / root.name).code == "rootfs_symlink"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_directory_above_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    above = tmp_path / "above"
    above.mkdir()
    root = make(above / "root")
    above.chmod(mode)
    sticky_and_of_root = mode & 0o1000 and os.geteuid() == 0
    if sticky_and_of_root:  # as /tmp: nobody but root can move what is root's in it
        assert verify(str(root), uids=SLOTS)
    else:
        assert refused(root).code == "rootfs_unsafe_ancestor"


@pytest.mark.root
def test_a_directory_above_of_somebody_else_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    root = make(above / "root")
    os.chown(above, 1000, 1000)
    assert refused(root).code == "rootfs_unsafe_ancestor"


@pytest.mark.parametrize("place", [".", "etc", "usr/bin"])
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_directory_that_others_may_write_to_is_refused(root: Path, place: str, mode: int) -> None:
    (root / place).chmod(mode)
    assert refused(root).code == "rootfs_writable"


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_to_is_refused(root: Path, mode: int) -> None:
    (root / "etc/hosts").chmod(mode)
    error = refused(root)
    assert (error.code, error.inside) == ("rootfs_writable", "/etc/hosts")


def test_an_empty_sticky_directory_may_be_there_and_a_filled_one_may_not(root: Path) -> None:
    (root / "tmp").chmod(0o1777)
    assert verify(str(root), uids=SLOTS)
    write(root / "tmp/left", b"")
    assert refused(root).code == "rootfs_writable"


@pytest.mark.root
@pytest.mark.parametrize("place", [".", "etc", "etc/hosts", "bin"])
@pytest.mark.parametrize(
    ("uid", "code"), [(210_003, "rootfs_job_owned"), (1000, "rootfs_foreign_owner")]
)
def test_what_is_not_roots_is_refused(root: Path, place: str, uid: int, code: str) -> None:
    os.chown(root / place, uid, 0, follow_symlinks=False)
    assert refused(root).code == code


@pytest.mark.root
def test_an_account_of_jobs_that_owns_something_is_refused_even_if_it_is_ours(root: Path) -> None:
    with pytest.raises(RootfsError) as caught:
        verify(str(root), uids=[os.geteuid()])
    assert caught.value.code == "rootfs_job_owned"


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755])
def test_setuid_and_setgid_files_are_refused(root: Path, mode: int) -> None:
    (root / "usr/bin/bash").chmod(mode)
    error = refused(root)
    assert (error.code, error.inside) == ("rootfs_privileged_file", "/usr/bin/bash")


@pytest.mark.root
def test_file_capabilities_are_refused(root: Path) -> None:
    os.setxattr(root / "usr/bin/node", "security.capability", CAPABILITY)
    assert refused(root).code == "rootfs_privileged_file"


@pytest.mark.root
def test_an_access_list_that_lets_a_job_write_is_refused(root: Path) -> None:
    # POSIX ACL, version 2: owner rw, user 210003 rw, group r, mask rw, others r.
    entries = [(1, 6, -1), (2, 6, 210_003), (4, 4, -1), (16, 6, -1), (32, 4, -1)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(root / "etc/hosts", "system.posix_acl_access", packed)
    error = refused(root)
    assert (error.code, error.inside) == ("rootfs_writable", "/etc/hosts")


def test_special_files_are_refused(root: Path) -> None:
    os.mkfifo(root / "dev/fifo")
    assert refused(root).code == "rootfs_special_file"
    (root / "dev/fifo").unlink()
    back = os.open(".", os.O_RDONLY)
    os.chdir(root)  # the name of a socket has little room
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("dev/log")
    finally:
        os.fchdir(back)
        os.close(back)
    assert refused(root).code == "rootfs_special_file"


@pytest.mark.parametrize("name", ["proc", "dev", "tmp", "work"])
def test_a_missing_mount_point_is_refused(root: Path, name: str) -> None:
    (root / name).rmdir()
    error = refused(root)
    assert (error.code, error.inside) == ("rootfs_mount_point_missing", f"/{name}")


def test_a_link_is_no_mount_point(root: Path) -> None:
    (root / "work").rmdir()
    (root / "work").symlink_to("tmp")
    assert refused(root).code == "rootfs_mount_point_missing"


def test_another_digest_than_the_pinned_one_is_refused(root: Path) -> None:
    pinned = digest(manifest(str(root)))
    (root / "etc/hosts").write_bytes(b"127.0.0.1 elsewhere\n")
    assert refused(root, pinned=pinned).code == "rootfs_changed"
    assert refused(root, pinned="").code == "rootfs_changed"


def test_what_is_unfit_is_refused_whatever_was_pinned(root: Path) -> None:
    (root / "etc/hosts").chmod(0o666)
    assert refused(root, pinned=digest(manifest(str(root)))).code == "rootfs_writable"


SPOIL: dict[str, Callable[[Path], object]] = {
    "writable": lambda root: (root / "etc/hosts").chmod(0o666),
    "setuid": lambda root: (root / "usr/bin/bash").chmod(0o4755),
    "special": lambda root: os.mkfifo(root / "etc/fifo"),
    "no mount point": lambda root: (root / "work").rmdir(),
    "missing": lambda root: root.rename(root.with_name("gone")),
}


@pytest.mark.parametrize("spoil", SPOIL.values(), ids=SPOIL.keys())
def test_no_message_says_where_on_the_host_it_is(
    root: Path, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    spoil(root)
    error = refused(root)
    assert str(tmp_path) not in f"{error} {error.detail}"
    assert root.name not in str(error.inside or "")


def test_a_hostile_name_in_a_message_is_made_printable(root: Path) -> None:
    write(root / "etc/\x1b[31m\n", b"", mode=0o666)
    assert refused(root).inside == "/etc/%1B[31m%0A"


def pack(root: Path, languages: tuple[str, ...] = tuple(PACKS)) -> Path:
    return write(root / RECORD, record(languages, digest_of(str(root))))


def test_the_packs_of_its_record_are_offered(root: Path) -> None:
    pack(root)
    assert verify(str(root), uids=SLOTS).packs == tuple(PACKS.values())


def test_the_record_is_covered_by_the_digest_too(root: Path) -> None:
    before = verify(str(root), uids=SLOTS).digest
    pack(root)
    assert verify(str(root), uids=SLOTS).digest != before


def test_a_record_of_some_languages_offers_those(root: Path) -> None:
    pack(root, ("bash", "python"))
    assert verify(str(root), uids=SLOTS).packs == (PACKS["python"], PACKS["bash"])


def test_a_record_about_another_tree_offers_nothing(root: Path) -> None:
    pack(root)
    (root / "etc/hosts").write_bytes(b"127.0.0.1 elsewhere\n")
    assert verify(str(root), uids=SLOTS).packs == ()


def test_a_record_taken_from_another_tree_offers_nothing(root: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "other")
    write(other / "etc/more", b"")
    content = pack(other).read_bytes()
    write(root / RECORD, content)
    assert verify(str(root), uids=SLOTS).packs == ()


def test_a_link_in_place_of_the_record_offers_nothing(root: Path, tmp_path: Path) -> None:
    real = pack(root).rename(tmp_path / "packs.json")
    (root / RECORD).symlink_to(real)
    assert verify(str(root), uids=SLOTS).packs == ()


def test_a_record_of_unheard_of_size_offers_nothing(root: Path) -> None:
    path = pack(root)
    path.write_bytes(path.read_bytes() + b" " * 4096)
    assert verify(str(root), uids=SLOTS).packs == ()
