"""`rookhold quickstart`: the guided first run, from three jobs to evidence that verifies."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rookhold import ApiError, JobDetail, Rookhold
from rookhold_cli import ending, evidence, plain_words, tour
from rookhold_cli.errors import CommandError
from rookhold_cli.exits import Exit
from rookhold_cli.extras import load
from rookhold_cli.following import follow
from rookhold_cli.interrupts import termination_is_an_exception
from rookhold_cli.telling import Teller
from rookhold_cli.temporary import TemporaryGateway, require_server, temporary_gateway

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHANGED: Final = "result-changed.json"
_KEPT: Final = (*evidence.NAMES, _CHANGED)
_VERIFIER_SECONDS: Final = 60


class TourError(CommandError):
    """A stop of the tour did not go as it must; what follows would mean nothing."""

    exit = Exit.PROBLEM


@click.command("quickstart")
@click.option(
    "--into",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("rookhold-quickstart"),
    metavar="DIR",
    help="Where to put the evidence. [default: ./rookhold-quickstart/]",
)
def command(folder: Path) -> int:
    """See it all at work, in a few seconds: jobs, a limit, a refusal, evidence that verifies.

    Starts a gateway of its own on this computer and stops it at the end.
    """
    require_server("the tour starts a gateway, which")
    evidence.make_folder(folder, ours=_KEPT)
    tell = Teller()
    tell.title("Rookhold runs code that you do not trust, and keeps proof of what happened.")
    with termination_is_an_exception():
        started = time.monotonic()
        with temporary_gateway() as gateway, gateway.target.client() as client:
            _Tour(tell, gateway, client, folder).guide()
        tell.chapter("What next")
        _next_steps(tell, folder)
        tell.para("")
        tell.para(
            f"The gateway is stopped and its state removed; {folder} stays."
            f" That took {time.monotonic() - started:.0f} s."
        )
    return Exit.OK


@dataclass(frozen=True, slots=True)
class _Tour:
    tell: Teller
    gateway: TemporaryGateway
    client: Rookhold
    folder: Path

    def guide(self) -> None:
        self._show_gateway()
        languages = self.client.capabilities().languages
        proof = self._run_jobs(languages)
        self._hit_a_limit(languages)
        self._be_refused()
        self._explain_isolation(proof)
        self._keep_evidence(proof)
        self._change_one_byte(proof)

    def _show_gateway(self) -> None:
        self.tell.chapter("A gateway, just for this tour")
        self.tell.para(
            f"It listens on {self.gateway.target.base_url} for this computer only, with keys made"
            " a moment ago, and keeps what happens in one SQLite file:"
        )
        self.tell.verbatim(str(self.gateway.database))

    def _run_jobs(self, languages: Sequence[str]) -> JobDetail:
        """Run what this host can; return the job whose evidence is kept."""
        stops = [stop for stop in tour.JOBS if stop.language in languages]
        if not stops:
            raise TourError("no interpreter was found that a job could use")
        self.tell.chapter(f"{_count(len(stops))}, their output as it comes")
        missing = [stop.language for stop in tour.JOBS if stop.language not in languages]
        if missing:
            self.tell.para(f"Not installed here, so left out: {', '.join(missing)}.")
        details = {}
        for stop in stops:
            self.tell.para(f"{stop.language}: {stop.shows}")
            detail, sentence = self._run(stop)
            if detail.status != "succeeded":
                raise TourError(f"the {stop.language} job did not end well: {sentence}")
            took = ((detail.finished_at_ms or 0) - (detail.started_at_ms or 0)) / 1000
            self.tell.good(f"{sentence}, after {took:.1f} s")
            details[stop.language] = detail
        return details.get(tour.EVIDENCE_LANGUAGE) or next(iter(details.values()))

    def _run(self, stop: tour.Stop) -> tuple[JobDetail, str]:
        """Run one stop, showing its output as it comes; return it and how it ended."""
        submitted = self.client.submit(stop.language, stop.code, limits=stop.limits)
        ended = follow(
            self.client,
            submitted.job_id,
            lambda stream, data: self.tell.quote(
                stop.language if stream == "stdout" else stream,
                data.decode("utf-8", "replace").splitlines(),
            ),
        )
        detail = self.client.job(submitted.job_id)
        return detail, ending.of(detail, ended.rules)

    def _hit_a_limit(self, languages: Sequence[str]) -> None:
        self.tell.chapter("A job that would never end")
        self.tell.para("It may run for one second. Nobody has to watch it:")
        stop = tour.ENDLESS if tour.ENDLESS.language in languages else tour.ENDLESS_BASH
        detail, sentence = self._run(stop)
        if detail.status != "timed_out":
            raise TourError(f"the job without an end was not stopped: {sentence}")
        self.tell.good(f"{sentence}; nothing of it is left behind")

    def _be_refused(self) -> None:
        self.tell.chapter("A job that is not even started")
        self.tell.para("It asks for access to the internet:")
        stop = tour.REFUSED
        try:
            self.client.submit(stop.language, stop.code, limits=stop.limits)
        except ApiError as exc:
            self.tell.good(f"refused with the code {exc.code}, before anything ran")
        else:
            raise TourError("a job that asks for the network was accepted")

    def _explain_isolation(self, proof: JobDetail) -> None:
        receipt = proof.receipt or {}
        backend = str(receipt.get("backend"))
        self.tell.chapter("How strong was the sandbox, and why")
        self.tell.para(_where(backend, os.environ.get("ROOKHOLD_SANDBOX") or "auto"))
        observed = receipt.get("controls") or ()
        if observed:
            self.tell.para("What was seen in force around the first job, before its first line:")
            self.tell.items([("-", words) for words in plain_words.controls(observed)], width=2)
        loose = plain_words.loose_limits(receipt.get("limit_enforcement") or {})
        if loose:
            self.tell.para(" ".join((*loose, "The receipt claims neither more nor less.")))
        self.tell.para(
            plain_words.strength(backend, str(receipt.get("isolation_class"))), style="yellow"
        )
        for line in _not_to_be_had():
            self.tell.para(line)
        if backend == "namespaces-dev":
            self.tell.para("`rookhold check` says what a stronger sandbox needs.")

    def _keep_evidence(self, proof: JobDetail) -> None:
        self.tell.chapter("Proof that anybody can check, without this gateway")
        pem = self.gateway.public_key_pem
        signed = evidence.fetch_signed(self.client, proof.job_id, pem)
        if signed is None:
            raise TourError("the gateway did not sign the job's evidence")
        evidence.write(self.folder, proof, signed)
        self.tell.para(f"Written into {self.folder}:")
        self.tell.items(
            [
                (evidence.RECEIPT, "what was asked for, what was observed, how it ended"),
                (evidence.RESULT, "what the job printed, in the exact bytes that were signed"),
                (evidence.ENVELOPE, "the signature that binds the two together"),
                (evidence.PUBLIC_KEY, "the key to check it with"),
                (evidence.README, "how to check it, and what that proves"),
            ]
        )
        self.tell.para(f"Now rookhold-verify checks the {proof.language} job, offline:")
        said = self._verify(evidence.RESULT, proof)
        if said.returncode != 0:
            raise TourError(f"the evidence was not accepted: {said.stderr.strip()}")
        self.tell.good("verified: signed by this gateway's key, and not a byte was changed")

    def _change_one_byte(self, proof: JobDetail) -> None:
        self.tell.chapter("And if somebody changes one byte?")
        content = (self.folder / evidence.RESULT).read_bytes()
        before, after = _one_byte(content)
        (self.folder / _CHANGED).write_bytes(content.replace(before, after, 1))
        self.tell.para(f'In a copy, {_CHANGED}, "{before.decode()}" becomes "{after.decode()}":')
        said = self._verify(_CHANGED, proof)
        if said.returncode == 0:
            raise TourError("a changed result was accepted")
        self.tell.quote("", said.stderr.strip().splitlines())
        self.tell.good("refused, as it must be")

    def _verify(self, subject: str, proof: JobDetail) -> subprocess.CompletedProcess[str]:
        """Call the verifier as a user would, and show the call."""
        arguments = [
            "verify",
            "--envelope",
            evidence.ENVELOPE,
            "--subject",
            subject,
            "--public-key",
            self._key_file(),
            "--tenant",
            proof.tenant,
        ]
        self.tell.command(f"rookhold-verify {shlex.join(arguments)}")
        return subprocess.run(  # noqa: S603 - our own program, our own arguments
            [*_verifier(), *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERIFIER_SECONDS,
            check=False,
        )

    def _key_file(self) -> str:
        """Return the key in the folder, or a safer copy where others may write to that place."""
        keys = load("rookhold_attestation.keys", what="verifying", extra="verify")
        errors = load("rookhold_attestation.errors", what="verifying", extra="verify")
        try:
            keys.PublicKey.load(self.folder / evidence.PUBLIC_KEY)
        except errors.AttestationError:
            copy = self.gateway.database.parent / evidence.PUBLIC_KEY
            if not copy.exists():
                keys.PublicKey.from_pem(self.gateway.public_key_pem.decode("ascii")).save(copy)
            return str(copy)
        return evidence.PUBLIC_KEY


def _count(number: int) -> str:
    return {1: "One job", 2: "Two jobs", 3: "Three jobs"}[number]


def _one_byte(content: bytes) -> tuple[bytes, bytes]:
    """Return a piece of the result and the same piece with one byte changed."""
    if tour.BEFORE in content:
        return tour.BEFORE, tour.AFTER
    return b'"succeeded"', b'"succeedee"'


def _verifier() -> list[str]:
    """Return the program, or the same program as a module where scripts are not installed."""
    script = Path(sys.executable).parent / "rookhold-verify"
    return (
        [str(script)] if script.exists() else [sys.executable, "-P", "-m", "rookhold_attestation"]
    )


def _where(backend: str, asked: str) -> str:
    """Say which sandbox the jobs ran in, and who chose it."""
    name = plain_words.BACKENDS.get(backend, backend)
    if asked != "auto":
        return f"The jobs ran in {name} ({backend}), because ROOKHOLD_SANDBOX asks for it."
    if backend == "off":
        return "This computer offers no sandbox, so the jobs ran in none (off)."
    return f"The jobs ran in {name} ({backend}), the strongest that this computer offers now."


def _not_to_be_had() -> list[str]:
    """Say what this computer lacks and why; what lacks for the same reason is said together."""
    host = load("rookhold_cli.host", what="looking at this computer", extra="server")
    reasons: dict[str, list[str]] = {}
    for fact in host.facts():
        if not fact.available:
            reasons.setdefault(fact.why, []).append(fact.control)
    return [f"No {', '.join(controls)} here: {why}." for why, controls in reasons.items()]


def _next_steps(tell: Teller, folder: Path) -> None:
    rookhold = _ourselves()
    steps = (
        ("Run something of your own:", f"{rookhold} run python -c 'print(6 * 7)'"),
        ("See what this computer can enforce:", f"{rookhold} check"),
        ("Keep a gateway running, and use it from elsewhere:", f"{rookhold} dev"),
    )
    for words, line in steps:
        tell.para(words)
        tell.command(line)
    tell.para(f"How to read the proof: {folder / evidence.README}")


def _ourselves() -> str:
    """Return how the user can call us: by name if that finds us, else by where we are."""
    found = shutil.which("rookhold")
    script = Path(sys.executable).parent / "rookhold"
    if found is not None and Path(found).resolve() == script.resolve():
        return "rookhold"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m rookhold_cli"
    near = os.path.relpath(script)
    return shlex.quote(str(script) if near.startswith("..") else near)
