"""`rookhold-verify`: keys, offline verification, and a look inside an envelope.

Everything beyond argument parsing is imported by the command that needs it, so that asking for
help, or being told about a wrong argument, loads neither the cryptography nor much else.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys

from .errors import AttestationError, FileIoError

TYPE_CHECKING = False  # as typing's
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final, NoReturn, TextIO

    from .statement import Statement

PROGRAM: Final = "rookhold-verify"
_REFUSED: Final = 1
_USAGE: Final = 2
_NOT_VERIFIED: Final = "nothing was verified: these are the envelope's own claims"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 done or verified, 1 refused or failed, 2 wrong usage."""
    try:
        arguments = _parser().parse_args(argv)
        facts = arguments.command(arguments)
        _print_line(facts)
    except SystemExit as exc:  # argparse has printed the help or the complaint
        return exc.code if isinstance(exc.code, int) else _USAGE
    except AttestationError as exc:
        return _complain(f"{exc} [{exc.code}]")
    return 0


def _generate_key(arguments: argparse.Namespace) -> dict[str, object]:
    from .keys import PrivateKey

    key = PrivateKey.generate()
    key.save(arguments.output)
    return {"key_id": key.key_id}


def _public_key(arguments: argparse.Namespace) -> dict[str, object]:
    from .keys import PrivateKey

    public = PrivateKey.load(arguments.private_key).public_key
    public.save(arguments.output)
    return {"key_id": public.key_id}


def _verify(arguments: argparse.Namespace) -> dict[str, object]:
    from .keys import PublicKey
    from .verify import Policy, verify_envelope

    envelope = _read_envelope(arguments.envelope)
    subject = _read_subject(arguments.subject)
    verified = verify_envelope(
        envelope,
        artifact=subject,
        keys=[PublicKey.load(path) for path in arguments.public_key],
        policy=Policy(
            signatures_required=arguments.threshold,
            tenant=arguments.tenant,
            subject_name=arguments.subject_name,
            media_type=arguments.media_type,
        ),
    )
    checked = arguments.tenant is not None
    if not checked:
        _say("the tenant was read from the statement, not checked; pass --tenant to check it")
    return {
        "verified": True,
        **_identity(verified.statement),
        "tenant_checked": checked,
        **_result(verified.statement),
        "verified_key_ids": list(verified.key_ids),
    }


def _inspect(arguments: argparse.Namespace) -> dict[str, object]:
    from .envelope import read_envelope
    from .statement import check_statement, read_statement

    envelope = read_envelope(_read_envelope(arguments.envelope))
    envelope.check_shape()
    payload = envelope.decoded_payload()
    statement = read_statement(payload)
    check_statement(statement)
    _say(_NOT_VERIFIED)
    return {
        "verified": False,
        "notice": _NOT_VERIFIED,
        **_identity(statement),
        **_result(statement),
        "payload_type": envelope.payload_type,
        "statement_type": statement.statement_type,
        "predicate_type": statement.predicate_type,
        "statement_size_bytes": len(payload),
        "claimed_key_ids": [entry.usable_hint for entry in envelope.signatures],
    }


def _identity(statement: Statement) -> dict[str, object]:
    predicate = statement.predicate
    return {"execution_id": predicate.execution_id, "tenant": predicate.tenant}


def _result(statement: Statement) -> dict[str, object]:
    """Name the facts that may be printed; the receipt itself never is."""
    result = statement.predicate.result
    return {
        "subject_name": result.name,
        "subject_media_type": result.media_type,
        "subject_sha256": result.sha256,
        "subject_size_bytes": result.size_bytes,
        "outcome": statement.outcome,
        "event_chain_complete": statement.event_chain_complete,
    }


def _read_envelope(path: str) -> bytes:
    from pathlib import Path

    from . import profile
    from .errors import EnvelopeTooLargeError
    from .inputfiles import read_input

    too_large = EnvelopeTooLargeError(max_bytes=profile.ENVELOPE_BYTES_MAX)
    return read_input(Path(path), "envelope file", too_large)


def _read_subject(path: str) -> bytes:
    from pathlib import Path

    from . import profile
    from .errors import SubjectArtifactTooLargeError
    from .inputfiles import read_input

    too_large = SubjectArtifactTooLargeError(max_bytes=profile.ARTIFACT_BYTES_MAX)
    return read_input(Path(path), "subject file", too_large)


def _print_line(facts: dict[str, object]) -> None:
    import json

    # Escaped to ASCII: a name from an envelope must not be able to steer the reader's terminal.
    line = json.dumps(facts, separators=(",", ":"))
    _write(f"{line}\n")


def _write(text: str) -> None:
    """Write to standard output at once; what cannot be written is a failure like any other."""
    try:
        if sys.stdout is None:  # the caller closed it: there is nowhere to answer
            raise OSError(errno.EBADF, "")
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as exc:
        _silence(sys.stdout)
        raise FileIoError.of("standard output", exc) from None


def _write_error(text: str) -> None:
    """Write to standard error, if there is one: no exit status depends on it."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)


def _silence(stream: TextIO | None) -> None:
    """Let a stream that failed go nowhere: the interpreter's own flush at exit fails no more."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(sentence: str) -> None:
    _write_error(f"{PROGRAM}: {sentence}\n")


def _complain(sentence: str) -> int:
    _say(sentence)
    return _REFUSED


def _threshold(text: str) -> int:
    value = int(text)  # argparse turns a ValueError into its own complaint
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1 signature must be required")
    return value


class _Version(argparse.Action):
    """Answers `--version`; only then is the installed wheel looked at."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            _write(f"{PROGRAM} {version('rookhold-attestation')}\n")
        except PackageNotFoundError:  # run from its source
            _write(f"{PROGRAM}, not installed\n")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviations, and wraps its help at 80 columns.

    Asking the terminal for its width is what argparse loads most of its modules for.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_at_80_columns, allow_abbrev=False, **settings)

    def print_help(self, file: Any = None) -> None:
        _write(self.format_help())

    def error(self, message: str) -> NoReturn:
        _write_error(f"{self.format_usage()}{self.prog}: error: {message}\n")
        raise SystemExit(_USAGE)


def _at_80_columns(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=78)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Verify Rookhold execution attestations offline, and make the keys for it.",
        epilog="Exit status: 0 done or verified, 1 refused or failed, 2 wrong usage.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    generate = commands.add_parser("generate-key", help="write a new private key")
    generate.add_argument("--output", required=True, metavar="PATH")
    generate.set_defaults(command=_generate_key)

    public = commands.add_parser("public-key", help="derive the public key")
    public.add_argument("--private-key", required=True, metavar="PATH")
    public.add_argument("--output", required=True, metavar="PATH")
    public.set_defaults(command=_public_key)

    verify = commands.add_parser(
        "verify",
        help="verify an envelope against a result and pinned keys",
        description="Exit 0 means authentic and well-formed, never that the job succeeded: read "
        "outcome and event_chain_complete in the printed line.",
    )
    verify.add_argument("--envelope", required=True, metavar="PATH")
    verify.add_argument("--subject", required=True, metavar="PATH")
    verify.add_argument(
        "--public-key",
        required=True,
        action="append",
        metavar="PATH",
        help="a key you trust; may be given up to 16 times",
    )
    verify.add_argument("--threshold", type=_threshold, default=1, metavar="N")
    verify.add_argument("--tenant", metavar="T")
    verify.add_argument("--subject-name", metavar="N")
    verify.add_argument("--media-type", metavar="M")
    verify.set_defaults(command=_verify)

    inspect = commands.add_parser(
        "inspect",
        help="show what an envelope claims, verifying nothing",
    )
    inspect.add_argument("--envelope", required=True, metavar="PATH")
    inspect.set_defaults(command=_inspect)
    return parser
