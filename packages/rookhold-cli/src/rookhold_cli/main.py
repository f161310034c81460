"""The entry point: finds the verb, runs it, and turns every end into one exit status."""

from __future__ import annotations

import sys

from ._version import __version__

TYPE_CHECKING = False  # as typing's; importing that would take longer than answering --version
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

VERBS: Final = {
    "run": "Run a job and pass its output and exit code on.",
    "quickstart": "See it all at work: jobs, limits, a refusal, evidence that verifies.",
    "check": "Say what this host can enforce, and why.",
    "dev": "Serve a gateway for trying things out, on this computer only.",
    "serve": "Serve a gateway, configured by ROOKHOLD_* variables.",
    "config": "Show the settings of a gateway, and where each comes from.",
    "keys": "Make and revoke the credentials of a gateway.",
    "db": "Verify, back up and count a gateway's database.",
    "rootfs": "Build and check the system that jobs see.",
    "jobs": "List your jobs, newest first.",
    "show": "Show everything about one job.",
    "result": "Print what a job printed; end with its exit code.",
    "cancel": "Ask for a job's end.",
    "verify": "Check evidence offline.",
    "version": "Show the versions of what is installed.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:  # answered before anything is loaded
        print(f"rookhold {__version__}")  # noqa: T201 - output.py would take longer to load
        return 0
    status = 130
    try:
        from .dispatch import run

        status = run(arguments)
    except KeyboardInterrupt:  # it came while modules were still being loaded, or once too often
        pass
    _end_undisturbed()
    return status


def _end_undisturbed() -> None:
    """Ignore Ctrl-C from here on: the interpreter, ending, would die of it with no status."""
    import signal  # loaded long since

    while True:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            continue
        except ValueError:  # somebody calls us in a thread: then it is theirs
            pass
        return
