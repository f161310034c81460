import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_attestation import AttestationError, PrivateKey, PublicKey
from rookhold_attestation.testing import sample_key

STRANGER = 12_345


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def private(folder: Path) -> Path:
    path = folder / "key.pem"
    sample_key().save(path)
    return path


@pytest.fixture
def public(folder: Path) -> Path:
    path = folder / "key.pub.pem"
    sample_key().public_key.save(path)
    return path


def code_of_load(path: Path, kind: type[PrivateKey | PublicKey] = PrivateKey) -> str:
    with pytest.raises(AttestationError) as caught:
        kind.load(path)
    assert str(path.parent) not in f"{caught.value} {caught.value.detail}"
    return caught.value.code


def code_of_save(path: Path) -> str:
    with pytest.raises(AttestationError) as caught:
        sample_key(9).save(path)
    return caught.value.code


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_files_are_written_with_their_modes_whatever_the_umask(folder: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        sample_key().save(folder / "a")
        sample_key().public_key.save(folder / "b")
    finally:
        os.umask(old)
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "b").stat().st_mode) == 0o644
    assert PrivateKey.load(folder / "a").public_key == PublicKey.load(folder / "b")


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_private_modes_that_only_the_owner_can_use_pass(private: Path, mode: int) -> None:
    private.chmod(mode)
    assert PrivateKey.load(private).key_id == sample_key().key_id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o700, 0o610, 0o4600, 0o1600, 0o666])
def test_other_private_modes_are_refused(private: Path, mode: int) -> None:
    private.chmod(mode)
    assert code_of_load(private) == "unsafe_key_file_permissions"


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o444, 0o640])
def test_public_modes_that_only_the_owner_can_write_pass(public: Path, mode: int) -> None:
    public.chmod(mode)
    assert PublicKey.load(public) == sample_key().public_key


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o744, 0o645, 0o4644, 0o2644, 0o1644])
def test_other_public_modes_are_refused(public: Path, mode: int) -> None:
    public.chmod(mode)
    assert code_of_load(public, PublicKey) == "unsafe_key_file_permissions"


def test_an_existing_file_is_never_overwritten(private: Path) -> None:
    before = private.read_bytes()
    assert code_of_save(private) == "key_file_already_exists"
    assert private.read_bytes() == before


def test_nothing_is_written_through_an_existing_link(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "target")
    assert code_of_save(folder / "link") == "key_file_already_exists"
    assert not (folder / "target").exists()


def test_a_link_to_a_good_key_is_refused(private: Path) -> None:
    link = private.with_name("link")
    link.symlink_to(private)
    assert code_of_load(link) == "unsafe_key_file_type"


def test_a_dangling_link_is_refused_as_a_link(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "nowhere")
    assert code_of_load(folder / "link") == "unsafe_key_file_type"


def test_a_directory_a_fifo_and_a_device_are_refused_without_waiting(folder: Path) -> None:
    (folder / "directory").mkdir()
    os.mkfifo(folder / "fifo")
    assert code_of_load(folder / "directory") == "unsafe_key_file_type"
    assert code_of_load(folder / "fifo") == "unsafe_key_file_type"
    assert code_of_load(Path("/dev/null")) == "unsafe_key_file_type"


@pytest.fixture
def socket_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s")  # relative, because an absolute path may be too long for a socket
        yield folder / "s"


def test_a_socket_is_refused(socket_file: Path) -> None:
    assert code_of_load(socket_file) == "io"  # it cannot even be opened


def test_a_missing_file_and_a_missing_directory_are_plain_failures(folder: Path) -> None:
    assert code_of_load(folder / "missing") == "io"
    assert code_of_load(folder / "missing" / "key") == "io"
    assert code_of_save(folder / "missing" / "key") == "io"
    assert code_of_load(folder / "nul\0byte") == "io"
    assert code_of_load(folder / ("n" * 300)) == "io"
    assert code_of_save(folder / ("n" * 300)) == "io"


def test_a_parent_that_others_may_write_is_refused_for_reading_and_writing(folder: Path) -> None:
    shared = folder / "shared"
    shared.mkdir(mode=0o700)
    sample_key().save(shared / "key")
    for mode in (0o777, 0o775, 0o757):
        shared.chmod(mode)
        assert code_of_load(shared / "key") == "unsafe_key_file_permissions"
        assert code_of_save(shared / "new") == "unsafe_key_file_permissions"
    inner = shared / "inner"
    inner.mkdir(mode=0o700)
    assert code_of_save(inner / "new") == "unsafe_key_file_permissions"


@pytest.mark.root
def test_a_sticky_parent_passes_only_if_it_is_owned_by_root(folder: Path) -> None:
    shared = folder / "shared"
    shared.mkdir(mode=0o700)
    shared.chmod(0o1777)
    sample_key().save(shared / "key")
    assert PrivateKey.load(shared / "key").key_id == sample_key().key_id
    os.chown(shared, STRANGER, -1)
    assert code_of_load(shared / "key") == "unsafe_key_file_owner"


@pytest.mark.root
def test_a_file_or_parent_of_somebody_else_is_refused(private: Path, public: Path) -> None:
    os.chown(private, STRANGER, -1)
    os.chown(public, STRANGER, -1)
    assert code_of_load(private) == "unsafe_key_file_owner"
    assert code_of_load(public, PublicKey) == "unsafe_key_file_owner"
    os.chown(private, 0, -1)
    os.chown(private.parent, STRANGER, -1)
    try:
        assert code_of_load(private) == "unsafe_key_file_owner"
        assert code_of_save(private.with_name("new")) == "unsafe_key_file_owner"
    finally:
        os.chown(private.parent, 0, -1)


@pytest.mark.root
def test_a_key_of_root_may_be_read_by_a_service_user(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: STRANGER)
    assert PrivateKey.load(private).key_id == sample_key().key_id


@pytest.mark.root
def test_a_linked_parent_passes_only_if_the_link_is_owned_by_root(private: Path) -> None:
    alias = private.parent / "alias"
    alias.symlink_to(private.parent)
    assert PrivateKey.load(alias / private.name).key_id == sample_key().key_id
    os.lchown(alias, STRANGER, -1)
    assert code_of_load(alias / private.name) == "unsafe_key_file_owner"
    assert code_of_save(alias / "new") == "unsafe_key_file_owner"


@pytest.mark.root
def test_what_a_linked_parent_leads_to_is_checked_as_well(folder: Path) -> None:
    open_folder, alias = folder / "open", folder / "alias"
    open_folder.mkdir(mode=0o700)
    sample_key().save(open_folder / "key")
    open_folder.chmod(0o777)
    alias.symlink_to(open_folder)
    assert code_of_load(alias / "key") == "unsafe_key_file_permissions"


def test_a_path_through_a_parent_reference_is_refused(private: Path) -> None:
    (private.parent / "inner").mkdir()
    roundabout = private.parent / "inner" / ".." / private.name
    assert code_of_load(roundabout) == "unsafe_key_file_type"
    assert code_of_save(private.parent / "inner" / ".." / "new") == "unsafe_key_file_type"


def test_a_path_through_a_file_is_refused(private: Path) -> None:
    assert code_of_load(private / "key") == "unsafe_key_file_type"
    assert code_of_load(Path()) == "unsafe_key_file_type"


def test_a_relative_path_is_read_from_the_working_directory(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(private.parent)
    assert PrivateKey.load(private.name).key_id == sample_key().key_id


def test_a_file_over_the_limit_is_refused_and_one_at_it_is_read(private: Path) -> None:
    private.write_bytes(b"x" * 16_384)
    assert code_of_load(private) == "invalid_key_encoding"
    private.write_bytes(b"x" * 16_385)
    assert code_of_load(private) == "key_file_too_large"


def test_a_file_that_grows_while_it_is_read_is_refused(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.read", lambda _descriptor, size: b"x" * size)
    assert code_of_load(private) == "key_file_too_large"


def test_a_file_that_is_not_utf8_crlf_or_with_extra_lines_is_refused(private: Path) -> None:
    pem = private.read_bytes()
    for content in (b"\xff" + pem, pem.replace(b"\n", b"\r\n"), pem + b"\n", b"\n" + pem, b""):
        private.write_bytes(content)
        assert code_of_load(private) == "invalid_key_encoding"


def test_the_checks_come_in_the_documented_order(private: Path) -> None:
    """Everything is wrong at once; each repair uncovers the next refusal."""
    private.write_bytes(b"\xff" * 16_385)
    private.chmod(0o644)
    private.parent.chmod(0o777)
    assert code_of_load(private) == "unsafe_key_file_permissions"  # the path
    private.parent.chmod(0o700)
    assert code_of_load(private) == "key_file_too_large"
    private.write_bytes(b"\xff" * 100)
    assert code_of_load(private) == "unsafe_key_file_permissions"  # the file's own mode
    private.chmod(0o600)
    assert code_of_load(private) == "invalid_key_encoding"


def test_a_failed_write_leaves_no_half_written_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert code_of_save(folder / "key") == "io"
    assert not (folder / "key").exists()
