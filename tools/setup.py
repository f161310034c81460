"""Make the checkout runnable: system packages, the wheelhouse, then `.venv` from the lock.

Standard library only, because it runs before anything is installed. Says what it does in one line
each, and is quick when there is nothing to do.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
WHEELHOUSE = ROOT / "wheelhouse"
LOCK = ROOT / "requirements.lock"
JOB_PATH = "/usr/local/bin:/usr/bin:/bin"  # where a sandbox looks for interpreters
ROOT_PATH = f"{JOB_PATH}:/usr/local/sbin:/usr/sbin:/sbin"

# Published as source only. It is built without fetching anything, with the locked setuptools.
SOURCE_ONLY = frozenset({"cgroupspy"})

# Debian package -> is it needed? The commands it brings are looked for where a job would look.
SYSTEM_PACKAGES = {
    "python3-venv": lambda: importlib.util.find_spec("ensurepip") is None or not _pip_is_bundled(),
    "ca-certificates": lambda: not Path("/etc/ssl/certs/ca-certificates.crt").exists(),
    "nodejs": lambda: shutil.which("node", path=JOB_PATH) is None,
}
TEST_PACKAGES = {
    "git": lambda: shutil.which("git") is None,  # a release is tried in a repository of its own
    "mmdebstrap": lambda: shutil.which("mmdebstrap") is None,  # builds the root of sandboxes
    "libseccomp2": lambda: not _has_library("libseccomp.so.2"),  # regenerates the syscall filter
    "runsc": lambda: shutil.which("runsc", path=JOB_PATH) is None,  # the gVisor backend
    "uidmap": lambda: shutil.which("newuidmap") is None,  # the unprivileged mode
    "e2fsprogs": lambda: shutil.which("mke2fs", path=ROOT_PATH) is None,  # a VM's disks
    "qemu-system-x86": lambda: shutil.which("qemu-system-x86_64") is None,  # emulates the VM
}
BENCH_PACKAGES = {
    "bubblewrap": lambda: shutil.which("bwrap", path=JOB_PATH) is None,  # what we compare with
}
# `use` needs the system packages alone; a test sees to it that the benchmarks run.
PURPOSES = {
    "use": SYSTEM_PACKAGES,
    "bench": SYSTEM_PACKAGES | BENCH_PACKAGES,
    "check": SYSTEM_PACKAGES | TEST_PACKAGES | BENCH_PACKAGES,
}
OPTIONAL = frozenset({"nodejs"})  # without it two languages remain


def _pip_is_bundled() -> bool:
    """Tell whether `python -m venv` can install pip; Debian splits the bundle off."""
    import ensurepip

    try:
        return bool(ensurepip.version())
    except Exception:
        return False


def _has_library(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def run(*argv: str | Path, quiet: bool = False) -> None:
    """Run one command from the checkout; its failure ends the setup with its own status.

    A quiet one's output is shown only if it fails.
    """
    done = subprocess.run(
        [str(part) for part in argv],
        cwd=ROOT,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else sys.stderr,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        if quiet:
            sys.stderr.write(done.stdout)
        say(f"failed: {Path(argv[0]).name} {argv[1] if len(argv) > 1 else ''}".rstrip())
        raise SystemExit(done.returncode)


def system_packages(wanted: dict[str, object]) -> None:
    """Install what the host lacks as root; otherwise print the one line that would."""
    missing = [name for name, needed in wanted.items() if needed()]  # type: ignore[operator]
    if not missing:
        return
    line = f"apt-get update && apt-get install -y {' '.join(missing)}"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing {', '.join(missing)}")
        env = "DEBIAN_FRONTEND=noninteractive"
        run("env", env, "apt-get", "-qq", "update", quiet=True)
        run(
            "env",
            env,
            "apt-get",
            "-qq",
            "-y",
            "--no-install-recommends",
            "install",
            *missing,
            quiet=True,
        )
        return
    say(f"missing on this host: {', '.join(missing)}. As root: {line}")
    if not set(missing) <= OPTIONAL | set(TEST_PACKAGES) | set(BENCH_PACKAGES):
        raise SystemExit(69)
    if "nodejs" in missing:
        say("going on without node: Python and Bash jobs will run, Node.js jobs will not")


def requirement_blocks(lock: Path = LOCK) -> list[str]:
    """Return the locked requirements, one text block each, hashes included."""
    blocks = re.split(r"\n(?=\S)", lock.read_text("utf-8").strip())
    return [block for block in blocks if not block.startswith("#")]


def name_of(block: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", block)
    assert found is not None, block
    return found.group().lower().replace("_", "-")


def fill_wheelhouse(pip: list[str | Path]) -> None:
    """Download every locked distribution for this interpreter, by hash; put uv into `.venv`."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    stamp = WHEELHOUSE / f".filled-{version}"
    filled = stamp.exists() and stamp.read_text("utf-8") == digest
    common = ["download", "--quiet", "--no-deps", "--require-hashes", "--dest", "wheelhouse"]
    blocks = requirement_blocks()
    if not filled:
        say("downloading the locked packages (checked by hash)")
        WHEELHOUSE.mkdir(exist_ok=True)
        wheels = [block for block in blocks if name_of(block) not in SOURCE_ONLY]
        pip_with(pip, [*common, "--only-binary=:all:"], wheels)
    if not (VENV / "bin" / "uv").exists():
        run(
            *pip,
            "install",
            "--quiet",
            "--no-index",
            "--find-links",
            "wheelhouse",
            "uv",
            "setuptools",
            quiet=True,
        )
    if not filled:
        sources = [block for block in blocks if name_of(block) in SOURCE_ONLY]
        pip_with(pip, [*common, "--no-binary=:all:", "--no-build-isolation"], sources)
        stamp.write_text(digest, "utf-8")


def pip_with(
    pip: list[str | Path], argv: list[str], blocks: list[str], folder: Path = WHEELHOUSE
) -> None:
    """Run pip on these requirements; with hashes, it takes them from a file only."""
    wanted = folder / ".wanted.txt"
    wanted.write_text("\n".join(blocks) + "\n", "utf-8")
    try:
        run(*pip, *argv, "--requirement", wanted, quiet=True)
    finally:
        wanted.unlink()


def make_venv() -> None:
    """Create `.venv` on this interpreter; one made on another version or moved is replaced."""
    python = VENV / "bin" / "python"
    if python.exists():
        probe = subprocess.run(
            [str(python), "-c", "import sys,pip;print(sys.prefix, sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if probe.returncode == 0 and probe.stdout.strip() == f"{VENV} {sys.version_info[:2]}":
            return
        say("replacing an unusable .venv")
        shutil.rmtree(VENV)
    run(sys.executable, "-m", "venv", VENV)


def sync() -> None:
    """Install the workspace as locked, unless nothing it depends on has changed."""
    inputs = [
        ROOT / "uv.lock",
        ROOT / "pyproject.toml",
        *sorted(ROOT.glob("packages/*/pyproject.toml")),
    ]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    stamp = VENV / ".synced"
    if stamp.exists() and stamp.read_text("utf-8") == digest:
        return
    say("installing into .venv")
    run(
        VENV / "bin" / "uv",
        "sync",
        "--quiet",
        "--locked",
        "--offline",
        "--inexact",
        "--python",
        VENV / "bin" / "python",
    )
    stamp.write_text(digest, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="purpose", choices=tuple(PURPOSES), default="use")
    purpose = parser.parse_args().purpose
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs before anything checks it
        say("Python 3.11 or newer is needed")
        raise SystemExit(69)
    system_packages(PURPOSES[purpose])
    make_venv()
    pip: list[str | Path] = [VENV / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    fill_wheelhouse(pip)
    sync()


if __name__ == "__main__":
    main()
