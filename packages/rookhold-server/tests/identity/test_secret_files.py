"""Which files of secrets may be read."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rookhold_server.identity.secret_files import (
    SecretFileError,
    UnreadableSecretFileError,
    UnsafeSecretFileError,
    check_for,
    read_secret_file,
    stamp_of,
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that only we may change, and so is everything above it."""
    above = next(Path(p) for p in ("/var/lib", "/run", str(Path.home())) if os.access(p, os.W_OK))
    made = Path(tempfile.mkdtemp(prefix="rookhold-test-", dir=above))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def file(place: Path) -> Path:
    (place / "keys").mkdir(mode=0o700)
    path = place / "keys" / "secret"
    path.touch(mode=0o600)
    path.write_bytes(b"secret")
    return path


def read(path: Path, *, strict: bool = True) -> bytes:
    return read_secret_file(path, bytes_max=100, strict=strict)[0]


def refusal(path: Path, *, strict: bool = True) -> type[SecretFileError]:
    with pytest.raises(SecretFileError) as caught:
        read(path, strict=strict)
    assert str(path) not in str(caught.value)
    assert "secret" not in str(caught.value)
    return type(caught.value)


def test_a_private_file_below_private_directories_is_read(file: Path) -> None:
    assert read(file) == b"secret"
    file.chmod(0o400)
    assert read(file) == b"secret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o660])
def test_production_wants_no_bit_for_group_and_others(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert refusal(file) is UnsafeSecretFileError
    assert read(file, strict=False) == b"secret"


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777, 0o720])
def test_production_wants_no_directory_above_that_others_may_change(file: Path, mode: int) -> None:
    file.parent.chmod(mode)
    assert refusal(file) is UnsafeSecretFileError
    file.parent.chmod(0o700)
    file.parent.parent.chmod(mode)
    assert refusal(file) is UnsafeSecretFileError
    assert read(file, strict=False) == b"secret"


def test_production_wants_an_absolute_path(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert refusal(Path(file.name)) is UnsafeSecretFileError
    assert refusal(file.parent / ".." / "keys" / file.name) is UnsafeSecretFileError
    assert read(Path(file.name), strict=False) == b"secret"


def test_a_link_is_never_followed(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    for strict in (True, False):
        assert refusal(link, strict=strict) is UnsafeSecretFileError


def test_production_wants_no_link_on_the_way(file: Path) -> None:
    way = file.parent.with_name("way")
    way.symlink_to(file.parent)
    assert refusal(way / file.name) is UnsafeSecretFileError
    assert read(way / file.name, strict=False) == b"secret"


def make_nothing(path: Path) -> None:
    del path


def make_directory(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize("make", [make_nothing, make_directory, make_pipe])
def test_nothing_else_is_a_file(file: Path, make: Callable[[Path], None]) -> None:
    file.unlink()
    make(file)
    for strict in (True, False):
        refusal(file, strict=strict)


def test_a_file_that_is_too_large_is_not_read(file: Path) -> None:
    file.write_bytes(b"s" * 100)
    assert read(file) == b"s" * 100
    file.write_bytes(b"s" * 101)
    assert refusal(file) is UnreadableSecretFileError


@pytest.mark.root
def test_production_wants_a_file_and_directories_of_root_or_our_own(file: Path) -> None:
    os.chown(file, 4711, 4711)
    assert refusal(file) is UnsafeSecretFileError
    check_for(file, 4711)
    os.chown(file, 0, 0)
    with pytest.raises(SecretFileError):  # it could not read it
        check_for(file, 4711)
    os.chown(file.parent, 4711, 4711)
    assert refusal(file) is UnsafeSecretFileError
    assert read(file, strict=False) == b"secret"


def test_the_stamp_tells_a_change(file: Path) -> None:
    _, stamp = read_secret_file(file, bytes_max=100, strict=False)
    assert stamp_of(file) == stamp
    file.write_bytes(b"secreT")
    changed = stamp_of(file)
    assert changed != stamp
    other = file.with_name("other")
    other.write_bytes(b"secreT")
    other.replace(file)
    assert stamp_of(file) not in {stamp, changed}
    file.unlink()
    assert stamp_of(file) is None
