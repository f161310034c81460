"""Fetch the lowest versions that the wheels say they work with, into `wheelhouse-floor/`.

    python tools/floors.py            download what requirements-floor.lock has beyond the other
    python tools/floors.py --probe    exit 0 if that is done already, or an index answers

Run by the tests that need it, with the interpreter and the pip settings of this host.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import setup as workspace

LOCK = workspace.ROOT / "requirements-floor.lock"
FOLDER = workspace.ROOT / "wheelhouse-floor"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
PROBE_SECONDS = 15


def wanted() -> list[str]:
    """Return the blocks that are not in the wheelhouse already."""
    locked = {_pin(block) for block in workspace.requirement_blocks()}
    return [block for block in workspace.requirement_blocks(LOCK) if _pin(block) not in locked]


def _pin(block: str) -> str:
    return block.split(" ", 1)[0]


def stamp() -> tuple[Path, str]:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    contents = hashlib.sha256("\n".join(wanted()).encode()).hexdigest()
    return FOLDER / f".filled-{version}", contents


def filled() -> bool:
    path, contents = stamp()
    return path.exists() and path.read_text("utf-8") == contents


def index_answers() -> bool:
    """Fetch one small distribution to tell whether pip, as it is configured, can reach any."""
    with tempfile.TemporaryDirectory() as scratch:
        requirement = Path(scratch) / "probe.txt"
        requirement.write_text(min(wanted(), key=len) + "\n", "utf-8")
        options = ["--retries", "1", "--timeout", str(PROBE_SECONDS), "--no-cache-dir", "--quiet"]
        done = subprocess.run(
            [*PIP, "download", *options, "--no-deps", "--dest", scratch, "-r", requirement],
            check=False,
            capture_output=True,
        )
    return done.returncode == 0


def fill() -> None:
    if filled():
        return
    workspace.say("downloading the lowest versions the wheels declare (checked by hash)")
    FOLDER.mkdir(exist_ok=True)
    options = ["download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    workspace.pip_with(PIP, [*options, "--dest", FOLDER.name], wanted(), FOLDER)
    path, contents = stamp()
    path.write_text(contents, "utf-8")


def main() -> None:
    if sys.argv[1:] == ["--probe"]:
        raise SystemExit(0 if filled() or index_answers() else 69)
    fill()


if __name__ == "__main__":
    main()
