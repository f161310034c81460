"""The canonical manifest: it depends on the tree and on nothing else, whatever the names are."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_rootfs import make, write

from rookhold_exec.rootfs import digest, manifest, tree
from rookhold_exec.rootfs.errors import (
    ChangingError,
    MissingError,
    NotDirectoryError,
    RootfsError,
    SpecialFileError,
    SymlinkError,
    TooLargeError,
)
from rookhold_exec.rootfs.manifest import digest_of
from rookhold_exec.rootfs.tree import printable

HOSTILE = [
    b"new\nfile 0644 0 0 0 - ",
    b"a b",
    b"%41",
    b"\xff\xfe",
    "ünïcode".encode(),
    b"-",
    b"\x1b[2J",
    b"a" * 255,
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "root")


def told(root: Path) -> list[str]:
    return manifest(str(root)).decode("ascii").splitlines()


def test_a_small_tree_is_described_line_by_line(root: Path) -> None:
    me = f"{os.getuid()} {os.getgid()}"
    empty = hashlib.sha256(b"#!").hexdigest()
    hosts = hashlib.sha256(b"127.0.0.1 localhost\n").hexdigest()
    assert told(root) == [
        "rookhold-rootfs-manifest 1",
        f"dir 0755 {me} - - /",
        f"link 0777 {me} 7 usr/bin /bin",
        f"dir 0755 {me} - - /dev",
        f"dir 0755 {me} - - /etc",
        f"file 0644 {me} 20 {hosts} /etc/hosts",
        f"dir 0755 {me} - - /etc/rookhold",
        f"dir 0755 {me} - - /proc",
        f"dir 0755 {me} - - /tmp",
        f"dir 0755 {me} - - /usr",
        f"dir 0755 {me} - - /usr/bin",
        f"file 0755 {me} 2 {empty} /usr/bin/bash",
        f"file 0755 {me} 2 {empty} /usr/bin/node",
        f"link 0777 {me} 10 python3.11 /usr/bin/python3",
        f"file 0755 {me} 2 {empty} /usr/bin/python3.11",
        f"dir 0755 {me} - - /usr/lib",
        f"dir 0755 {me} - - /work",
    ]


def test_entries_are_in_the_byte_order_of_their_whole_paths(root: Path) -> None:
    for name in ("a", "a/x", "a-b", "a.c", "a0", "a/x/y"):
        if name in {"a", "a/x"}:
            (root / name).mkdir()
        else:
            write(root / name, b"")
    paths = [line.split()[-1].encode() for line in told(root)[1:]]
    assert paths == sorted(paths)
    assert paths.index(b"/a") < paths.index(b"/a-b") < paths.index(b"/a/x") < paths.index(b"/a0")


def test_hostile_names_make_one_plain_line_each(root: Path) -> None:
    before = len(told(root))
    for name in HOSTILE:
        write(Path(os.fsdecode(os.fsencode(root) + b"/etc/" + name)), b"")
    lines = told(root)
    assert len(lines) == before + len(HOSTILE)
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert all(len(line.split(" ")) == 7 for line in lines[1:])
    named = {line.split(" ")[-1] for line in lines}
    assert {printable(b"/etc/" + name) for name in HOSTILE} <= named


def test_a_links_target_is_plain_too(root: Path) -> None:
    (root / "etc/link").symlink_to("a b\nfile")
    assert any(" a%20b%0Afile /etc/link" in line for line in told(root))


NAMES = st.binary(min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_no_two_names_look_alike(one: bytes, other: bytes) -> None:
    assert (printable(one) == printable(other)) == (one == other)


@settings(max_examples=25, deadline=None)
@given(names=st.sets(st.binary(min_size=1, max_size=9), max_size=12))
def test_any_set_of_names_is_ordered_and_complete(
    tmp_path_factory: pytest.TempPathFactory, names: set[bytes]
) -> None:
    root = os.fsencode(make(tmp_path_factory.mktemp("named") / "root"))
    usable = {name for name in names if not {b"/"[0], 0} & set(name) and name not in {b".", b".."}}
    for index, name in enumerate(sorted(usable)):
        place = root + b"/usr/lib/" + name
        if index % 2:
            Path(os.fsdecode(place)).write_bytes(b"")
        else:
            Path(os.fsdecode(place)).mkdir()
            Path(os.fsdecode(place + b"/" + name)).write_bytes(b"")
    fd = os.open(root, os.O_RDONLY)
    try:
        paths = [entry.path for entry in tree.Walk(fd)]
    finally:
        os.close(fd)
    assert all(before < after for before, after in pairwise(paths))
    assert {b"/usr/lib/" + name for name in usable} <= set(paths)


@pytest.mark.parametrize("change", ["content", "mode", "name", "target", "kind", "more"])
def test_every_change_changes_the_digest(root: Path, change: str) -> None:
    before = digest(manifest(str(root)))
    hosts = root / "etc/hosts"
    match change:
        case "content":
            hosts.write_bytes(b"127.0.0.1 localhosT\n")
        case "mode":
            hosts.chmod(0o600)
        case "name":
            hosts.rename(root / "etc/hostS")
        case "target":
            (root / "bin").unlink()
            (root / "bin").symlink_to("usr/lib")
        case "kind":
            hosts.unlink()
            hosts.mkdir()
        case _:
            (root / "etc/more").mkdir()
    assert digest(manifest(str(root))) != before


@pytest.mark.root
def test_an_owner_changes_the_digest(root: Path) -> None:
    before = digest(manifest(str(root)))
    os.chown(root / "etc/hosts", 0, 12)
    assert digest(manifest(str(root))) != before


@pytest.mark.root
def test_a_file_capability_is_part_of_it(root: Path) -> None:
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    os.setxattr(root / "usr/bin/node", "security.capability", value)
    assert f"xattr security.capability {value.hex()} /usr/bin/node" in told(root)


def test_times_and_the_order_of_creation_change_nothing(root: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "other")
    for name in ("b", "a"):
        write(root / "etc" / name, b"")
    for name in ("a", "b"):
        write(other / "etc" / name, b"")
    for path in other.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert manifest(str(root)) == manifest(str(other))


def test_the_streamed_digest_is_that_of_the_whole(root: Path) -> None:
    assert digest_of(str(root)) == digest(manifest(str(root)))


def test_a_fifo_has_no_place_in_one(root: Path) -> None:
    os.mkfifo(root / "etc/fifo")
    with pytest.raises(SpecialFileError) as caught:
        manifest(str(root))
    assert caught.value.inside == "/etc/fifo"


@pytest.mark.root
def test_a_device_has_no_place_in_one(root: Path) -> None:
    os.mknod(root / "dev/null", 0o020666, os.makedev(1, 3))
    with pytest.raises(SpecialFileError):
        manifest(str(root))


def test_links_are_described_and_never_followed(root: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", b"secret")
    (root / "etc/shadow").symlink_to(secret)
    (root / "etc/loop").symlink_to("../etc")
    said = manifest(str(root)).decode()
    assert hashlib.sha256(b"secret").hexdigest() not in said
    assert "/etc/loop/" not in said


def test_a_huge_sparse_file_is_refused_before_it_is_read(root: Path) -> None:
    with (root / "etc/huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLargeError):
        manifest(str(root))


def test_too_many_entries_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "ENTRIES_MAX", 10)
    with pytest.raises(TooLargeError):
        manifest(str(root))


def test_nesting_without_end_is_refused(root: Path) -> None:
    deep = root / "usr/lib"
    for _ in range(tree.DEPTH_MAX):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(TooLargeError):
        manifest(str(root))


def test_a_large_file_takes_little_memory(root: Path) -> None:
    with (root / "etc/large").open("wb") as file:
        file.truncate(256 << 20)
    program = (
        "import resource, sys\n"
        "from rookhold_exec.rootfs.manifest import digest_of\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "digest_of(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)], capture_output=True, check=True, timeout=120
    )
    assert int(done.stdout) < 32 << 10  # KiB


def test_a_file_that_grows_while_it_is_read_is_noticed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.read

    def growing(fd: int, count: int) -> bytes:
        with (root / "etc/hosts").open("ab") as file:
            file.write(b"more\n")
        return real(fd, count)

    monkeypatch.setattr("rookhold_exec.rootfs.tree.os.read", growing)
    with pytest.raises(ChangingError):
        manifest(str(root))


def test_what_is_no_directory_has_no_manifest(root: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        manifest(str(tmp_path / "nothing"))
    with pytest.raises(NotDirectoryError):
        manifest(str(root / "etc/hosts"))
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(SymlinkError):
        manifest(str(tmp_path / "link"))
    with pytest.raises(RootfsError):
        manifest("a\0b")
